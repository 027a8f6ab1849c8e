"""The settings of a run, and for each group the settings that all of its options share.

Settings of a single component are in the `config.py` of its group. Nothing here uses Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from border_cli.errors import ConfigError
from border_cli.settings.base import LONGEST_WAIT_S, Settings, setting
from border_cli.settings.schedule import UPDATES

S = TypeVar("S", bound=Settings)
INTERVALS = ("eval", "record", "save", "sync")  # prefixes of the trainer's intervals
# The exploration of an actor: None for the agent's settings, an amount, or the actor's own values
# of the agent's `exploration_settings`.
ActorExploration: TypeAlias = float | Mapping[str, Any] | None
AUTO = "auto"  # value of `resume` (starts a run, or resumes the one in run_dir) and `num_actors`
DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?|mps")


class StartMethod(StrEnum):
    """Start method of child processes."""

    auto = "auto"
    forkserver = "forkserver"
    spawn = "spawn"


class Objective(StrEnum):
    """Evaluation score that a job returns to a sweeper."""

    best = "best"
    last = "last"


class Warmup(StrEnum):
    """Actions before the first update."""

    random = "random"
    policy = "policy"


# Reaction of a sweep to a failed job. `continue` is a keyword, hence the functional syntax.
OnError = StrEnum("OnError", {"continue": "continue", "stop": "stop"})


@dataclass(kw_only=True)
class GroupConfig(Settings):
    """Settings of the option chosen in a group. Comparisons ignore the name of the option."""

    option: str | None = field(
        default=None,
        compare=False,
        metadata={
            "meaning": "name of these settings in lists of runs, by default that of their file; "
            "null means that of the component"
        },
    )

    def refuse_missing(self) -> None:
        """Raises an error if a package or service that the component needs is missing. Called
        before anything is built."""


@dataclass(kw_only=True)
class AgentConfig(GroupConfig, path="agent"):
    """Settings that every agent has."""

    on_policy: ClassVar[bool] = False  # whether it learns only from its newest policy's transitions
    gives_priorities: ClassVar[bool] = True  # whether its TD errors can be used as priorities
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")  # supported action spaces
    exploration_settings: ClassVar[tuple[str, ...]] = ()  # settings that an actor can override

    gamma: float = setting(0.99, "discount per env step", low=0, high=1)
    batch_size: int = setting(64, "transitions per update", low=1, takes_memory=True)

    @property
    def needs_returns(self) -> bool:
        """True if the agent observes the running discounted returns of the actors."""
        return False


@dataclass(kw_only=True)
class EnvConfig(GroupConfig, path="env"):
    """Settings that every environment has."""

    named_by: ClassVar[str] = "id"  # setting that identifies the environment
    # Whether id and wrappers may name a module before a colon. If so, the factory's
    # `refuse_saved_id` checks saved ids.
    calls_by_name: ClassVar[bool] = False

    id: str | None = setting(None, "id of the environment; a preset such as env=cartpole sets it")
    num_envs: int = setting(1, "environments per actor", low=1, high=100_000, takes_memory=True)
    max_episode_steps: int | None = setting(
        None, "episode limit in env steps; null means the environment's own limit", low=1
    )
    probe: bool = setting(
        True,
        "plays a few steps in a fresh environment before the run directory is created; false "
        "only constructs it, for simulators that start slowly",
        may_change=True,
    )

    def one_by_one(self) -> Self:
        """Returns the settings for runs that resume exactly: environments are stepped one by one,
        because a resume cannot restore the random numbers of a vector implementation."""
        return self

    def for_evaluation(self) -> Self:
        """Returns the settings without changes that apply to training only."""
        return self

    def with_threads(self, num_threads: int) -> Self:  # noqa: ARG002 - few environments have any
        """Returns the settings with the number of threads for one actor's environments."""
        return self


def modules_of_env(env: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the settings of an environment that name a module before a colon, with the module."""
    env_id, wrappers = env.get("id"), env.get("wrappers")
    if isinstance(env_id, str) and ":" in env_id:
        yield "id", env_id.rpartition(":")[0]
    for entry in wrappers if isinstance(wrappers, list) else []:
        names = entry if isinstance(entry, dict) else [entry]
        for name in names:
            if isinstance(name, str) and ":" in name:
                yield "wrappers", name.partition(":")[0]


@dataclass(kw_only=True)
class StepProcessorConfig(GroupConfig, path="step_processor"):
    """Base class of the settings of step processors."""


@dataclass(kw_only=True)
class ReplayBufferConfig(GroupConfig, path="replay_buffer"):
    """Settings that every replay buffer has."""

    prioritizes: ClassVar[bool] = False  # whether it needs the TD errors of the agent
    one_step: ClassVar[bool] = False  # whether each transition must span one step
    needs_episodes: ClassVar[bool] = False  # whether transitions have the column `episode`
    on_policy: ClassVar[bool] = False  # whether transitions are dropped after the agent's update

    capacity: int = setting(
        100_000,
        "maximum number of transitions; new ones overwrite the oldest",
        low=1,
        takes_memory=True,
    )

    @property
    def dataset(self) -> str | None:
        """Id of the data set that it samples from; None without a data set."""
        return None

    @property
    def dataset_share(self) -> float | None:
        """Fraction of each batch that comes from the data set; None if the fraction is not set."""
        return None


@dataclass(kw_only=True)
class ActorManagerConfig(GroupConfig, path="actor_manager"):
    """Settings that every actor manager has."""

    may_change: ClassVar[bool] = True
    in_learner_thread: ClassVar[bool] = False  # whether actors step in the learner's own thread
    follows_cluster: ClassVar[bool] = False  # whether num_actors may be auto
    # `module:Class` of the manager that steps these actors in lockstep with the learner
    # (trainer=sync), None if that is impossible; and whether such runs repeat to the bit.
    lockstep: ClassVar[str | None] = None
    lockstep_repeats: ClassVar[bool] = True

    num_actors: Any = setting(
        2,
        "number of actors; with actor_manager=ray also auto: as many as fit on the cluster",
        low=1,
        high=10_000,
        takes_memory=True,
    )
    n_buffer: int = setting(
        20,
        "transitions that an actor collects before it sends them to the learner",
        low=1,
        takes_memory=True,
    )
    max_restarts: int = setting(
        3, "restarts allowed per actor after failures; a resumed run starts counting again", low=0
    )
    exploration: Any = setting(
        None,
        "exploration of each actor; null means that of the agent. A list has one entry per actor: "
        "null, a number (epsilon, temperature, standard deviation of the noise, or a factor for "
        "that of a stochastic policy) or a mapping of exploration settings of the agent. With "
        "ape_x, actor i uses the number 0.4 ** (1 + 7 i / (num_actors - 1)) (Horgan et al. 2018)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.num_actors
        if type(count) is not int and not (self.follows_cluster and count == AUTO):
            also = ", or auto" if self.follows_cluster else ""
            self.refuse("num_actors", count, f"must be a whole number of at least 1{also}")
        value = self.exploration
        if value is None or value == "ape_x":
            return
        is_valid = isinstance(value, list) and all(
            isinstance(entry, Mapping | None)
            or (isinstance(entry, int | float) and not isinstance(entry, bool) and entry >= 0)
            for entry in value
        )
        if not is_valid or len(value) != self.most_actors:
            self.refuse(
                "exploration",
                value,
                f"must be null, ape_x, or a list of {self.most_actors} entries (one per actor, "
                "actor_manager.num_actors), each null, a number of at least 0 or a mapping of the "
                "agent's exploration settings",
            )

    @property
    def most_actors(self) -> int:
        """Maximum number of actors: `num_actors`, unless it is auto."""
        return int(self.num_actors)

    def exploration_of(self, actor_id: int) -> ActorExploration:
        """Returns the exploration of one actor."""
        if self.exploration == "ape_x":
            spread = actor_id / max(1, self.most_actors - 1)
            return float(0.4 ** (1 + 7 * spread))
        entry: ActorExploration = self.exploration and self.exploration[actor_id]
        return entry


@dataclass(kw_only=True)
class TrainerConfig(GroupConfig, path="trainer"):
    """Limits and intervals."""

    offline: ClassVar[bool] = False  # whether it learns from a data set only, without actors
    synchronous: ClassVar[bool] = False  # whether actors must step only within `receive`

    max_opt_steps: int | None = setting(
        100_000, "ends the run after this many updates; null means no limit", low=1, may_change=True
    )
    max_env_steps: int | None = setting(
        None,
        "ends the run after this many env steps, summed over all actors; null means no limit",
        low=1,
        may_change=True,
    )
    max_time_s: float | None = setting(
        None, "ends the run after this many seconds; null means no limit", above=0, may_change=True
    )
    stop_at_score: float | None = setting(
        None, "ends the run when evaluations reach this score; null means never", may_change=True
    )
    stop_evals: int = setting(
        2, "consecutive evaluations that must reach stop_at_score", low=1, may_change=True
    )
    stop_confirmations: int = setting(
        2,
        "maximum number of times that an evaluation is extended by new episodes while the mean "
        "over all its episodes reaches stop_at_score; this mean is the score",
        low=0,
        may_change=True,
    )
    patience: int | None = setting(
        None,
        "ends the run after this many evaluations in a row without a new best score; null means "
        "never",
        low=1,
        may_change=True,
    )
    eval_interval: int = setting(
        1_000,
        "updates between evaluations; 0 means only at the end of the run",
        low=0,
        may_change=True,
    )
    eval_interval_env_steps: int | None = setting(
        None,
        "env steps between evaluations, in place of eval_interval; null means off",
        low=1,
        may_change=True,
    )
    record_interval: int = setting(
        100,
        "updates between rows of metrics; 0 means only at the end of the run",
        low=0,
        may_change=True,
    )
    record_interval_env_steps: int | None = setting(
        None,
        "env steps between rows of metrics, in place of record_interval; null means off",
        low=1,
        may_change=True,
    )
    save_interval: int = setting(
        5_000,
        "updates between checkpoints; 0 means only at the end of the run",
        low=0,
        may_change=True,
    )
    save_interval_env_steps: int | None = setting(
        None,
        "env steps between checkpoints, in place of save_interval; null means off",
        low=1,
        may_change=True,
    )
    save_every_s: float | None = setting(
        None,
        "also saves a checkpoint when the last one is this many seconds old; null means off",
        above=0,
        may_change=True,
    )
    sync_interval: int = setting(
        20,
        "updates between copies of the weights to the actors; 0 means none after the warm-up; "
        "unused with trainer=sync",
        low=0,
        may_change=True,
    )
    sync_interval_env_steps: int | None = setting(
        None,
        "env steps between copies of the weights to the actors, in place of sync_interval; null "
        "means off",
        low=1,
        may_change=True,
    )
    stall_timeout_s: float = setting(
        60.0,
        "seconds without a step after which a component counts as hung",
        above=0,
        high=LONGEST_WAIT_S,
        may_change=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score", "patience")
        if all(getattr(self, name) is None for name in limits):
            self.refuse(
                "max_opt_steps",
                None,
                "may be null only if max_env_steps, max_time_s, stop_at_score or patience is set",
            )
        for name in ("stop_at_score", "patience"):
            value = getattr(self, name)
            if value is not None and self.eval_interval == 0:
                self.refuse(name, value, "needs trainer.eval_interval above 0")
        for name in INTERVALS:
            if getattr(self, f"{name}_interval_env_steps") is not None:
                self.refuse_beside(
                    [f"{name}_interval"],
                    f"cannot be set together with trainer.{name}_interval_env_steps",
                )

    def steps_of_run(self, counter: str) -> int | None:
        """Returns the number of updates or env steps of the whole run; None without a limit."""
        return self.max_opt_steps if counter == UPDATES else self.max_env_steps

    def with_steps(self, settings: S) -> S:
        """Returns a copy in which every schedule has steps, by default those of the whole run."""
        schedules = {}
        for name, (counter, schedule) in settings.schedules.items():
            steps = schedule["steps"] or self.steps_of_run(counter)
            if steps is None:
                settings.refuse(
                    f"{name}.steps", None, f"must be set in a run without a limit in {counter}"
                )
            schedules[name] = {**schedule, "steps": steps}
        return replace(settings, **schedules) if schedules else settings


@dataclass(kw_only=True)
class ReplayRatioConfig(TrainerConfig):
    """Limits, intervals, and the ratio of collected transitions to updates."""

    warmup_period: int = setting(
        1_000,
        "transitions collected before the first update",
        low=0,
    )
    warmup: Warmup = setting(
        Warmup.random,
        "actions before the first update: uniformly random, or those of the untrained policy with "
        "its exploration; with init_from always those of the policy",
    )
    samples_per_opt_step: float | None = setting(
        1.0,
        "transitions collected per update (the inverse of the replay ratio); null means no rate "
        "limit",
        above=0,
    )

    def steps_of_run(self, counter: str) -> int | None:
        """Returns the number of updates or env steps until the first limit of either. The replay
        ratio converts one into the other."""
        ratio, warmup = self.samples_per_opt_step, self.warmup_period
        updates, env_steps = self.max_opt_steps, self.max_env_steps
        if counter == UPDATES:
            limits = updates, env_steps and ratio and (env_steps - warmup) / ratio
        else:
            limits = env_steps, updates and ratio and warmup + updates * ratio
        steps = [limit for limit in limits if limit is not None]
        return max(1, round(min(steps))) if steps else None


@dataclass(kw_only=True)
class EvaluatorConfig(GroupConfig, path="evaluator"):
    """Settings that every evaluator has."""

    num_episodes: int = setting(
        20, "episodes per evaluation, each in its own environment", low=1, takes_memory=True
    )
    max_episode_steps: int | None = setting(
        None,
        "episode limit in env steps; null means the environment's own limit; if it has none, 5 "
        "times the longest training episode before the first evaluation, 200 to 10,000",
        low=1,
    )
    env: dict[str, Any] = setting(
        {},
        "settings of env to override for evaluation; kwargs are merged key by key, and the value "
        "`default` leaves an argument to the constructor",
    )
    background: bool | None = setting(
        None,
        "evaluates in a separate process while training continues; null means that it does if "
        "observations are large images (at least 36 x 36) and there are two cores. "
        "Bit-reproducible runs (trainer=sync, trainer=offline, actor_manager=serial) do so only if "
        "it is true and actors step beside the learner",
        may_change=True,
    )
    ref_min_score: float | None = setting(
        None,
        "return that maps to 0 in eval/normalized_score, such as that of random actions; null "
        "means the value stored in the data set, if any",
    )
    ref_max_score: float | None = setting(None, "return that maps to 100; see ref_min_score")

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.ref_min_score, self.ref_max_score
        neither = low is None and high is None
        if not neither and (low is None or high is None or high <= low):
            self.refuse("ref_max_score", high, f"must be above ref_min_score ({low}), or both null")


@dataclass(kw_only=True)
class RecorderConfig(Settings, path="recorder"):
    """Base class of the settings of recorders."""

    may_change: ClassVar[bool] = True

    def refuse_missing(self) -> None:
        """Raises MissingPackage if a package that the recorder needs is not installed."""


@dataclass(kw_only=True)
class CallbackConfig(Settings, path="callback"):
    """Base class of the settings of callbacks."""

    may_change: ClassVar[bool] = True


@dataclass(kw_only=True)
class CheckpointConfig(Settings, path="checkpoint"):
    """Number and content of the checkpoints."""

    may_change: ClassVar[bool] = True

    keep: int = setting(
        3, "number of latest checkpoints kept, in addition to the best model", low=1
    )
    milestone_interval: int = setting(
        0,
        "updates between checkpoints that are kept permanently, without the replay buffer; 0 "
        "means none",
        low=0,
    )
    replay_buffer: bool = setting(
        True,
        "saves the replay buffer; without it, a resumed run first collects warmup_period "
        "transitions again",
    )


@dataclass(kw_only=True)
class SweepConfig(Settings, path="sweep"):
    """Settings of a sweep as a whole; a single run ignores them."""

    may_change: ClassVar[bool] = True

    on_error: OnError = setting(
        OnError("continue"),
        "continue: after a job has failed, the other jobs still run; stop: no further job starts",
    )
    skip_invalid: bool = setting(
        False,
        "skips jobs with invalid settings, such as an agent that does not support an environment; "
        "false refuses a sweep with an invalid job",
    )


# Sections of settings that are not groups.
SECTIONS = {"checkpoint": CheckpointConfig, "sweep": SweepConfig}


def _name_of(settings: Settings) -> str:
    """Returns the name of the component that these settings belong to, such as dqn."""
    return type(settings).__name__.removesuffix("Config").lower()


@dataclass(kw_only=True)
class RunConfig(Settings):
    """Settings of the whole run."""

    seed: int = setting(0, "seed of the run; all other seeds are derived from it", low=0)
    name: str = setting(
        "run", "name in the default run_dir; <agent>_<env> if composed", may_change=True
    )
    device: str = setting(
        "auto",
        "device of the learner: cpu, cuda, cuda:N (the GPU of that number), mps or auto (CUDA if "
        "available, else cpu)",
        may_change=True,
    )
    imports: list[str] = setting(
        [], "Python modules to import first, to register your own components", may_grow=True
    )
    run_dir: str | None = setting(
        None,
        "run directory; null means outputs/<name>/<time>. It must not already contain a run, "
        "unless resume=auto",
    )
    resume: str | None = setting(
        None,
        "RUN_DIR: continues that run; auto: starts or continues the run in run_dir, and returns "
        "the score of a finished run",
    )
    init_from: str | None = setting(
        None,
        "RUN_DIR, one of its checkpoints or a folder of border-export: starts from these weights; "
        "for RUN_DIR, those of its best model, or of its latest checkpoint if there is none",
    )
    dry_run: bool = setting(False, "prints what the run would do and need, without running it")
    quiet: bool = setting(
        False,
        "prints a single line at the end, with the best score and the run directory; warnings "
        "and errors go to standard error",
        may_change=True,
    )
    statistics: bool = setting(
        False,
        "prints at the end what actors and trainer did, and how they spent their time; the log "
        "always contains it",
        may_change=True,
    )
    objective: Objective = setting(
        Objective.best, "evaluation score that a job returns to a sweeper", may_change=True
    )

    agent: AgentConfig
    env: EnvConfig
    step_processor: StepProcessorConfig
    replay_buffer: ReplayBufferConfig
    actor_manager: ActorManagerConfig
    trainer: TrainerConfig
    evaluator: EvaluatorConfig
    recorder: dict[str, RecorderConfig] = field(default_factory=dict)
    callback: dict[str, CallbackConfig] = field(default_factory=dict)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    sweep: SweepConfig = field(default_factory=SweepConfig)

    def __post_init__(self) -> None:
        """Checks combinations of settings from different groups; see also `check_actors`."""
        super().__post_init__()
        if DEVICE.fullmatch(self.device) is None:
            self.refuse("device", self.device, "must be auto, cpu, cuda, cuda:N or mps")
        for name in ("run_dir", "resume", "init_from"):
            if getattr(self, name) == "":
                self.refuse(name, "", "must not be empty; null means none")
        if self.resume == AUTO and self.run_dir is None:
            raise ConfigError("resume=auto needs run_dir=DIR, the run to start or to resume")
        if self.name in ("", ".", "..") or PurePath(self.name).name != self.name:
            self.refuse("name", self.name, "must be a plain directory name")
        if self.replay_buffer.prioritizes and not self.agent.gives_priorities:
            raise ConfigError(
                "replay_buffer must be one without priorities (such as uniform): the agent "
                f"({_name_of(self.agent)}) has no TD errors "
                "to prioritize transitions by"
            )
        if self.agent.on_policy or self.replay_buffer.on_policy:
            self._check_rollouts()
        else:
            self.trainer.with_steps(self.agent)
        if self.replay_buffer.one_step:
            self._check_one_step(_name_of(self.replay_buffer))
        trainer, capacity = self.trainer, self.replay_buffer.capacity
        if (
            isinstance(trainer, ReplayRatioConfig)
            and trainer.warmup_period > capacity
            and not self.agent.on_policy
        ):
            trainer.refuse(
                "warmup_period",
                trainer.warmup_period,
                f"must be at most replay_buffer.capacity ({capacity})",
            )
        if "num_envs" in self.evaluator.env:
            raise ConfigError("evaluator.env.num_envs: each episode has its own environment")

    def _check_rollouts(self) -> None:
        """Refuses settings that do not work with an agent that learns from rollouts."""
        agent, buffer = _name_of(self.agent), _name_of(self.replay_buffer)
        if not self.replay_buffer.on_policy:
            raise ConfigError(
                f"agent={agent} learns only from rollouts of its newest policy: use replay_buffer="
                f"rollout, got {buffer}"
            )
        if not self.agent.on_policy:
            raise ConfigError(
                f"replay_buffer=rollout is for on-policy agents such as ppo, and agent={agent} "
                "learns from older transitions too. Use replay_buffer=uniform"
            )
        if not self.trainer.synchronous:
            raise ConfigError(
                f"agent={agent} needs trainer=sync, got {_name_of(self.trainer)}: actors must wait "
                "while it learns from their rollout"
            )
        no_effect = f"has no effect with agent={agent}, which learns from whole rollouts"
        unused = ("warmup_period", "warmup", "samples_per_opt_step", "sync_interval")
        self.trainer.refuse_beside([*unused, "sync_interval_env_steps"], no_effect)
        self.replay_buffer.refuse_beside(["capacity"], "has no effect: see replay_buffer.n_steps")
        if self.actor_manager.exploration is not None:
            self.actor_manager.refuse("exploration", self.actor_manager.exploration, no_effect)
        environments = self.actor_manager.most_actors * self.env.num_envs
        rollout = getattr(self.replay_buffer, "n_steps", 1) * environments
        if self.agent.batch_size > rollout:
            self.agent.refuse(
                "batch_size",
                self.agent.batch_size,
                f"must be at most the {rollout} transitions of a rollout (replay_buffer.n_steps "
                f"times {environments} environments)",
            )

    def check_actors(self) -> None:
        """Raises ConfigError if the actors cannot step in lockstep with the learner.

        Called when a job is composed, not when saved settings are loaded to evaluate a run.
        """
        manager = self.actor_manager
        if self.trainer.synchronous and not (manager.in_learner_thread or manager.lockstep):
            other = "" if self.agent.on_policy else ", or trainer=async"
            raise ConfigError(
                f"actor_manager={_name_of(manager)} does not work with trainer=sync, whose actors "
                f"wait for the learner. Use actor_manager=serial, thread, process or ray{other}"
            )

    def _check_one_step(self, replay_buffer: str) -> None:
        n_steps = getattr(self.step_processor, "n_steps", 1)
        if n_steps != 1:
            raise ConfigError(
                f"step_processor.n_steps must be 1 with replay_buffer={replay_buffer}, got "
                f"{n_steps}: it needs the rewards of single steps. Use step_processor=n_step "
                "step_processor.n_steps=1"
            )
        if self.trainer.offline:
            raise ConfigError(
                f"replay_buffer={replay_buffer} needs actors, and trainer=offline has none. Use "
                "trainer=async or trainer=sync, or replay_buffer=dataset"
            )
