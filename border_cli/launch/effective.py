"""The settings of a run, resolved once: which actors there are and who steps them,
where evaluations run, and torch's threads."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.spaces import EnvSpec
from border_cli.errors import BorderError, ConfigError
from border_cli.evaluator.config import LOCAL, EpisodesConfig
from border_cli.registry import ACTOR_MANAGERS, REPLAY_BUFFERS
from border_cli.replay_buffer.config import DatasetConfig, RingConfig, rows_of_share
from border_cli.settings.run import (
    ActorManagerConfig,
    AgentConfig,
    EnvConfig,
    EvaluatorConfig,
    ReplayBufferConfig,
    RunConfig,
)
from border_cli.settings.schedule import Schedule, make_schedule
from border_cli.system.machine import available_cores

DATASET = "replay_buffer.dataset"  # the setting, as messages name it
DEFAULT = "default"  # in evaluator.env.kwargs: leaves an argument to the constructor


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """The settings of one run, and what follows from those of several groups together.

    Immutable, like the `RunConfig` that it was made from; any thread may read it. It stays in this
    process: recipes for other processes get the values that they need.
    """

    config: RunConfig  # as the user set them
    agent: AgentConfig  # with the steps of its schedules
    replay_buffer: ReplayBufferConfig  # … of its own
    has_actors: bool  # False: the run learns from a data set alone
    num_actors: int  # 0 without actors
    actors: ActorManagerConfig  # trainer=sync and offline: serial, with n_buffer 1
    backend: str  # name of `actors`: serial, thread, process, or a user's
    in_learner_thread: bool  # no other thread acts: the run is bit-reproducible on a CPU
    env: EnvConfig  # of the actors; stepped one by one in a bit-reproducible run
    slack: int  # samples that actors may be ahead of the replay ratio
    dataset: str | None  # id of the data set that the run learns from
    dataset_share: float | None  # of each batch; None: nothing says how many of its transitions

    @property
    def actor_threads(self) -> bool:
        """Whether each actor has a thread of this process."""
        return self.backend == "thread"

    def evaluates_in_background(self, spec: EnvSpec) -> bool:
        """Whether evaluations run in a separate process, as set; where nothing is, if images take
        them long and a core may be free. When a result arrives then depends on the machine, so
        never in a bit-reproducible run."""
        asked, agent = self.config.evaluator.background, self.config.agent
        if self.in_learner_thread or asked is not None:
            return bool(asked) and not self.in_learner_thread
        if not isinstance(agent, LearnerConfig) or available_cores() < 2:
            return False
        images = agent.architecture(spec.observation).images.values()
        return any(each.network != "minatar_cnn" for each in images)

    @property
    def schedules(self) -> dict[str, tuple[str, Schedule]]:
        """All schedules that the run follows, by their typed names, each with its counter."""
        return {
            f"{settings.path}.{name}": (counter, make_schedule(schedule))
            for settings in (self.agent, self.replay_buffer)
            for name, (counter, schedule) in settings.schedules.items()
        }

    @property
    def video_interval(self) -> int:
        """Updates between films of evaluations; 0: none."""
        evaluator = self.config.evaluator
        return evaluator.video_interval if isinstance(evaluator, EpisodesConfig) else 0

    @cached_property
    def evaluation_env(self) -> EnvConfig:
        """`env` with the values that `evaluator.env` replaces, its `kwargs` key by key; one episode
        per environment.

        Raises ConfigError for a value out of range, hence not before the first use.
        """
        settings, env = self.config.evaluator, self.config.env
        values = {**settings.env, "num_envs": settings.num_episodes}
        if "kwargs" in values:
            merged = {**getattr(env, "kwargs", {}), **values["kwargs"]}
            values["kwargs"] = {key: each for key, each in merged.items() if each != DEFAULT}
        return replace(env, **values)

    @cached_property
    def evaluator(self) -> EvaluatorConfig:
        """The evaluator's settings with the data set's reference scores, where it has some and the
        settings have none."""
        settings = self.config.evaluator
        if settings.ref_min_score is not None or self.dataset is None:
            return settings
        from border_cli.dataset.store import reference_scores

        try:
            found = reference_scores(self.dataset)
        except BorderError:  # the model can be evaluated without
            found = None
        if found is None:
            return settings
        return replace(settings, ref_min_score=found[0], ref_max_score=found[1])

    def with_episodes(self, num_episodes: int) -> EffectiveSettings:
        """These settings with another number of episodes per evaluation."""
        evaluator = replace(self.config.evaluator, num_episodes=num_episodes)
        return effective_settings(replace(self.config, evaluator=evaluator))

    def memory_settings(self) -> dict[str, Any]:
        """Settings with which the memory of the run grows, by their typed names."""
        config = self.config
        acting = (config.env, config.actor_manager) if self.has_actors else ()
        stored = (config.replay_buffer,) if self.has_actors else ()
        parts = (*stored, config.agent, *acting, config.evaluator)
        return {name: value for part in parts for name, value in part.taking_memory().items()}

    @property
    def torch_threads(self) -> int:
        """The threads of an update."""
        agent = self.config.agent
        return (agent.num_threads or 1) if isinstance(agent, LearnerConfig) else 1


def effective_settings(config: RunConfig) -> EffectiveSettings:
    """Resolves the settings of a run; nothing assigns to `config` any more.

    Raises ConfigError where the settings of the actors are of no registered type, where evaluations
    cannot be where they are asked for, and where there is nothing to learn from.
    """
    has_actors, dataset = not config.trainer.offline, _dataset_of(config)
    actors = config.actor_manager
    if config.trainer.synchronous or not has_actors:
        actors = _serial(actors)
    _refuse_elsewhere(config, actors)
    num_actors = config.actor_manager.most_actors if has_actors else 0
    env = config.env.with_threads(max(1, available_cores() // max(1, num_actors)))
    env = env.one_by_one() if actors.in_learner_thread else env
    return EffectiveSettings(
        config=config,
        agent=config.trainer.with_steps(config.agent),
        replay_buffer=config.trainer.with_steps(config.replay_buffer),
        has_actors=has_actors,
        num_actors=num_actors,
        actors=actors,
        backend=ACTOR_MANAGERS.entry_of(actors).name,
        in_learner_thread=actors.in_learner_thread,
        env=env,
        slack=_slack(config.actor_manager),
        dataset=dataset,
        dataset_share=_share_of(config),
    )


def _dataset_of(config: RunConfig) -> str | None:
    """The id of the data set; raises ConfigError where there must be one."""
    buffer, offline = config.replay_buffer, config.trainer.offline
    dataset = buffer.dataset if isinstance(buffer, RingConfig) else None
    if offline and dataset is None and not isinstance(buffer, DatasetConfig):
        chosen = REPLAY_BUFFERS.entry_of(buffer).name
        raise ConfigError(
            f"trainer=offline needs replay_buffer=dataset, or {DATASET}=ID with another one, got "
            f"replay_buffer={chosen}"
        )
    return dataset


def _share_of(config: RunConfig) -> float | None:
    """The share of the data set in each batch; raises ConfigError where a batch would not have both
    kinds of transitions."""
    buffer, batch_size = config.replay_buffer, config.agent.batch_size
    if not isinstance(buffer, RingConfig) or buffer.dataset_share is None:
        return None
    share = buffer.dataset_share
    if buffer.dataset is None:
        buffer.refuse("dataset_share", share, f"needs {DATASET}, the id of a data set")
    if config.trainer.offline:
        buffer.refuse("dataset_share", share, "must be null with trainer=offline: no actors")
    if not 0 < rows_of_share(share, batch_size) < batch_size:
        buffer.refuse(
            "dataset_share",
            share,
            f"must leave at least 1 of agent.batch_size={batch_size} transitions to the data set "
            "and to actors",
        )
    return share


def _refuse_elsewhere(config: RunConfig, actors: ActorManagerConfig) -> None:
    """Raises ConfigError where evaluations on other machines are asked for what is done here."""
    evaluator = config.evaluator
    if not isinstance(evaluator, EpisodesConfig) or evaluator.where == LOCAL:
        return
    if evaluator.video_interval:
        raise ConfigError("evaluator.video_interval needs evaluator.where=local")
    if actors.in_learner_thread:
        raise ConfigError(
            f"evaluator.where={evaluator.where} needs actors beside the learner: bit-reproducible "
            "runs (trainer=sync, trainer=offline, actor_manager=serial) always evaluate inline"
        )


def _serial(actors: ActorManagerConfig) -> ActorManagerConfig:
    """Settings of as many actors in turn in the learner's thread."""
    shared = {each.name: getattr(actors, each.name) for each in fields(ActorManagerConfig)}
    shared |= {"num_actors": actors.most_actors, "n_buffer": 1}
    serial: ActorManagerConfig = ACTOR_MANAGERS.entry("serial").config_type(**shared)
    return serial


def _slack(actors: ActorManagerConfig) -> int:
    """Two full messages for each actor, of the size that is set.

    One would be enough that none waits for ever. But what fills the messages of all actors is
    ahead, too, and at 32 actors in step with each other learner and actors would wait in turn.
    """
    return 2 * max(2, actors.most_actors) * actors.n_buffer
