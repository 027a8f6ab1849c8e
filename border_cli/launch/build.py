"""The parts of a run, each from its settings; the only file that knows every group."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from border_cli.actor_manager.actor import ActorFactory
from border_cli.actor_manager.weights import forms_of
from border_cli.agent.action_space import name_of
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.saved_state import as_learned
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core import threads
from border_cli.core.config import ActorManagerConfig, EnvConfig, RunConfig
from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.core.interfaces import (
    ActorManager,
    Agent,
    Confirmation,
    EnvFactory,
    EvaluationRunner,
    Evaluator,
    NoActors,
    Policy,
    PolicyFactory,
    ReplayBuffer,
    StepProcessor,
)
from border_cli.core.machine import memory_for
from border_cli.core.output import Checkpoints, Recorder, Recorders, RunInfo
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.threads import available_cores
from border_cli.core.timing import Clock
from border_cli.dataset.minari_files import Recording as DatasetReader
from border_cli.dataset.recorded_episodes import Checksum
from border_cli.dataset.store import counts_of, refuse_unknown
from border_cli.env.config import GymConfig, Vectorization
from border_cli.env.construct import normalizing
from border_cli.evaluator.background import BackgroundEvaluationRunner
from border_cli.evaluator.inline import InlineEvaluationRunner
from border_cli.launch.offline_data import (
    SETTING,
    SeeReturns,
    dataset_transitions,
    evaluator_config,
    observe_stored,
)
from border_cli.nn.encoding import encoded_size
from border_cli.nn.saving import load_state, save_state
from border_cli.nn.unfilled import Unfilled
from border_cli.registry import (
    ACTOR_MANAGERS,
    AGENTS,
    ENVS,
    EVALUATORS,
    GROUPS,
    RECORDERS,
    REPLAY_BUFFERS,
    STEP_PROCESSORS,
    TRAINERS,
)
from border_cli.replay_buffer.config import DatasetConfig
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.finding import find_weights
from border_cli.trainer.post_step import LearnerParts
from border_cli.trainer.recording import Recording
from border_cli.trainer.trainer import Trainer

log = logging.getLogger(__name__)


def env_factory(config: RunConfig) -> EnvFactory:
    """The recipe of the training environments."""
    if config.env.id is None:
        raise ConfigError("env.id must be set: choose a preset such as env=cartpole, or env.id=…")
    factory: EnvFactory = ENVS.build(env_config(config))
    return factory


def env_config(config: RunConfig) -> EnvConfig:
    """`env` as it is in effect: a run that repeats to the bit steps environments one by one.

    A vector implementation keeps random numbers of its own, which no resume brings back.
    """
    if isinstance(config.env, GymConfig) and repeats(config):
        return replace(config.env, vectorization=Vectorization.sync)
    return config.env


def normalizing_wrappers(config: RunConfig) -> dict[str, str]:
    """Wrappers of `env.wrappers` that an agent's own setting should replace, with that setting."""
    return normalizing(config.env.wrappers) if isinstance(config.env, GymConfig) else {}


def evaluation_env_config(config: RunConfig) -> EnvConfig:
    """`env` with the values that `evaluator.env` replaces; one episode per environment."""
    changes = {**config.evaluator.env, "num_envs": config.evaluator.num_episodes}
    return replace(config.env, **changes)


def build_agent(config: RunConfig, spec: EnvSpec, *, learns: bool = True) -> Agent:
    """The agent with its first weights; one that only acts needs no compiler."""
    settings = config.agent
    if isinstance(settings, LearnerConfig):
        settings = replace(settings, num_threads=torch_threads(config, spec))
        if not learns:
            settings = replace(settings, compile=False)
    agent: Agent = AGENTS.build(
        settings,
        spec=spec,
        device=config.device.value,
        seed=derived_seed(config.seed, Branch.LEARNER),
    )
    return agent


def countable_agent(config: RunConfig, spec: EnvSpec, *, learns: bool = True) -> Agent:
    """The agent to be counted and dropped: it takes no memory, and its large weights have no
    contents. Raises ConfigError where they would take more than there is."""
    what = (
        f"the agent does not fit in memory (env.id={spec.id}: "
        f"{encoded_size(spec.observation):,} numbers per observation, actions "
        f"{name_of(spec.action)})"
    )
    with memory_for(what, config.agent.taking_memory(), ConfigError), Unfilled():
        return build_agent(config, spec, learns=learns)


def encoders_of(agent: Agent) -> list[tuple[str, str]]:
    """What stands before an agent's dense layers, titled: a user's network, or the images that it
    sees, a line each, with what they go through."""
    if not isinstance(agent, TorchAgent):
        return []
    target, images = agent.architecture.target, agent.architecture.images
    if target is not None:
        return [("network", f"{agent.architecture.kind} ({target.replace(':', '.')})")]
    lines = []
    for key, each in images.items():
        channels, height, width = each.shape
        axis = "first" if each.channels_first else "last"
        of = "1 channel" if channels == 1 else f"{channels} channels {axis}"
        name = f"{key}: " if key else ""
        lines.append(f"{name}{height} x {width}, {of}, network {each.network}")
    return [("images", "\n".join(lines))] if lines else []


def memory_settings(config: RunConfig) -> dict[str, Any]:
    """What the memory of the run grows with, as it is typed."""
    rows = {} if config.trainer.offline else config.replay_buffer.taking_memory()
    acting = (config.env, config.actor_manager) if num_actors(config) else ()
    parts = (config.agent, *acting, config.evaluator)
    return rows | {name: value for part in parts for name, value in part.taking_memory().items()}


def torch_threads(config: RunConfig, spec: EnvSpec) -> int:
    """How many threads an update has: as set, else one, or where its arithmetic can be shared
    every core that no actor keeps busy."""
    agent = config.agent
    if not isinstance(agent, LearnerConfig):
        return 1
    if agent.num_threads is not None:
        return agent.num_threads
    if not isinstance(agent, LearnerConfig) or not agent.compute_bound(spec.observation):
        return 1
    # Actors that keep to a pace mostly wait for such a learner.
    free = config.trainer.samples_per_opt_step is None
    busy = num_actors(config) if free else 0
    return max(1, available_cores() - busy)


def spec_of_state(config: RunConfig, spec: EnvSpec, state: Mapping[str, Any]) -> EnvSpec:
    """What an agent is built for that is given this state of one: how observations are taken is
    part of a model."""
    if not isinstance(config.agent, LearnerConfig):
        return spec
    observation = as_learned(spec.observation, state)
    if observation is not spec.observation:
        log.info(
            "observations are encoded as in earlier versions: uint8 is divided by 255, and images "
            "below 36 x 36 are flattened"
        )
    return replace(spec, observation=observation)


def build_first_agent(
    config: RunConfig, spec: EnvSpec, build: Callable[[RunConfig, EnvSpec], Agent] = build_agent
) -> Agent:
    """The agent that a run begins with, built by `build`: with the weights that `init_from` names,
    if it does."""
    if config.init_from is None:
        return build(config, spec)
    try:
        folder = find_weights(Path(config.init_from).expanduser())
        state = load_state(folder / "agent.pt")
        agent = build(config, spec_of_state(config, spec, state))
        agent.load_weights(state)
    except CheckpointError as error:
        raise CheckpointError(f"init_from={config.init_from}: {error}") from error
    log.info("starting from the weights in %s", folder)
    return agent


def build_evaluator(
    config: RunConfig,
    *,
    stop: StopFlag,
    heartbeat: Heartbeat,
    seed: int | None = None,
    factory: EnvFactory | None = None,
) -> Evaluator:
    """The evaluator; without `seed` its episodes are those of every evaluation of the run."""
    return _evaluator_recipe(config, seed, factory)(stop=stop, heartbeat=heartbeat)


def _evaluator_recipe(
    config: RunConfig, seed: int | None = None, factory: EnvFactory | None = None
) -> Callable[..., Evaluator]:
    """Makes the evaluator from `stop` and `heartbeat`, here or in another process."""
    evaluator: Callable[..., Evaluator] = EVALUATORS.load(config.evaluator)
    return partial(
        evaluator,
        evaluator_config(config),
        factory=factory or ENVS.build(evaluation_env_config(config)),
        seed=derived_seed(config.seed if seed is None else seed, Branch.EVALUATION),
    )


def build_recorders(
    config: RunConfig,
    run_dir: Path,
    console: Any,
    best: tuple[float, int] | None = None,
) -> Recorders:
    """The recorders in the order of the config; `best` is the score of earlier attempts."""
    trainer = config.trainer
    info = RunInfo(
        name=config.name,
        run_dir=run_dir,
        max_opt_steps=trainer.max_opt_steps,
        max_env_steps=trainer.max_env_steps,
        max_time_s=trainer.max_time_s,
        quiet=config.quiet,
        best=best,
        samples=not config.trainer.offline,
        settings=hyperparameters(config),
    )
    built: list[Recorder] = []
    try:
        for each in config.recorder.values():
            built.append(RECORDERS.build(each, info=info, console=console))  # noqa: PERF401
    except BaseException:  # those that opened a file already
        for recorder in built:
            recorder.close()
        raise
    return built


def hyperparameters(config: RunConfig) -> dict[str, bool | float | str]:
    """The settings by which runs are compared, under the names by which they are typed.

    Where a run is written, and what it leaves there, is not one of them.
    """
    found: dict[str, bool | float | str] = {}
    for each in fields(config):
        value = getattr(config, each.name)
        if each.name in GROUPS and each.name != "recorder":
            found[each.name] = GROUPS[each.name].entry_of(value).name
            named = {every.name: getattr(value, every.name) for every in fields(value)}
            found |= _flat(each.name, named)
        elif each.name in ("seed", "device", "init_from"):
            found |= _flat("", {each.name: value})
    return found


def _flat(path: str, settings: Mapping[str, Any]) -> dict[str, bool | float | str]:
    found: dict[str, bool | float | str] = {}
    for name, value in settings.items():
        key = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict):
            found |= _flat(key, value)
        elif isinstance(value, Enum):
            found[key] = value.name
        else:
            found[key] = value if isinstance(value, bool | int | float) else _in_words(value)
    return found


def _in_words(value: object) -> str:
    return "null" if value is None else str(value)


def build_checkpoints(
    config: RunConfig, run_dir: Path, text: str, reacquire: Callable[[], None] = lambda: None
) -> CheckpointStore:
    """Where checkpoints go, which know the `text` of the run's settings by its checksum;
    `reacquire` creates a run directory again that is gone."""
    settings = config.checkpoint
    return CheckpointStore(
        run_dir,
        keep=settings.keep,
        milestone_interval=settings.milestone_interval,
        replay_buffer=settings.replay_buffer,
        save_state=save_state,
        config_sha256=hashlib.sha256(text.encode()).hexdigest(),
        settings=text,
        reacquire=reacquire,
    )


def evaluates_in_background(config: RunConfig) -> bool:
    """Whether `evaluator.background` is in effect: a run that repeats to the bit evaluates in line,
    because when a verdict arrives depends on the machine."""
    return config.evaluator.background and not repeats(config)


def repeats(config: RunConfig) -> bool:
    """Whether the run is bit-reproducible on a CPU: nothing acts beside the learner."""
    return ACTOR_MANAGERS.entry_of(actor_manager_config(config)).name == "serial"


def build_judge(
    config: RunConfig, agent: Agent, *, evaluator: Evaluator, stop: StopFlag, heartbeat: Heartbeat
) -> EvaluationRunner:
    """Who evaluates during the run; `evaluator` and `heartbeat` are for judging in line."""
    trainer = config.trainer
    confirmation = Confirmation(trainer.stop_at_score, trainer.stop_confirmations)
    make_policy = _policy_recipe(config, agent)
    if not evaluates_in_background(config):
        return InlineEvaluationRunner(evaluator, make_policy, heartbeat, confirmation)
    return BackgroundEvaluationRunner(
        _evaluator_recipe(config),
        make_policy,
        imports=config.imports,
        stop=stop,
        confirmation=confirmation,
    )


def evaluation_policy(config: RunConfig, agent: Agent) -> Policy:
    """A policy for the evaluator; weights are loaded before each evaluation."""
    return _policy_recipe(config, agent)()


def _policy_recipe(config: RunConfig, agent: Agent) -> Callable[[], Policy]:
    return partial(_policy, agent.policy_factory, config.seed)


def _policy(factory: PolicyFactory, seed: int) -> Policy:
    return factory(generator(seed, Branch.EVALUATION, 1))


def actor_manager_config(config: RunConfig) -> ActorManagerConfig:
    """The actors' settings as they are in effect: `trainer=sync` runs them in turn.

    So would a run that has none (see `num_actors`): like that one it repeats to the bit.
    """
    if not config.trainer.synchronous and not config.trainer.offline:
        return config.actor_manager
    shared = {
        each.name: getattr(config.actor_manager, each.name) for each in fields(ActorManagerConfig)
    }
    serial: ActorManagerConfig = ACTOR_MANAGERS.entry("serial").config_type(
        **shared | {"n_buffer": 1}
    )
    return serial


def num_actors(config: RunConfig) -> int:
    """How many actors there are: none where the run learns from a data set alone."""
    return 0 if config.trainer.offline else config.actor_manager.num_actors


def slack(config: RunConfig) -> int:
    """How many samples the actors may be ahead: two full leases for each.

    One would be enough for nobody to wait for ever. But what fills the proxies of all actors is
    ahead, too, and at 32 actors in step with each other learner and actors would wait in turn.
    """
    return 2 * max(2, config.actor_manager.num_actors) * config.actor_manager.n_buffer


def build_actors(
    config: RunConfig, agent: Agent, factory: EnvFactory, clock: Clock
) -> ActorManager:
    """Those of the run; nobody where it learns from a data set alone."""
    if config.trainer.offline:
        return NoActors()
    # The class itself and not its registry, which is empty in another process.
    step_processor: Callable[..., StepProcessor] = STEP_PROCESSORS.load(config.step_processor)
    make_actor = ActorFactory(
        seed=config.seed,
        env_factory=factory,
        policy_factory=agent.policy_factory,
        make_step_processor=partial(
            step_processor,
            config.step_processor,
            gamma=config.agent.gamma,
            num_envs=config.env.num_envs,
        ),
        imports=config.imports,
        weight_forms=forms_of(agent.snapshot()),
        returns_gamma=config.agent.gamma if config.agent.needs_returns else None,
    )
    actors: ActorManager = ACTOR_MANAGERS.build(
        actor_manager_config(config), make_actor=make_actor, clock=clock
    )
    return actors


def build_replay_buffer(
    config: RunConfig, spec: EnvSpec, see_returns: SeeReturns | None = None
) -> ReplayBuffer:
    """The replay buffer, with the rows of its data set if it has one; large memory.

    `see_returns` is given the running discounted returns of the data set, if the agent needs them.
    """
    rng = generator(config.seed, Branch.REPLAY_BUFFER)
    settings = config.replay_buffer
    more: dict[str, Any] = {}
    if isinstance(settings, DatasetConfig):
        dataset, checksum = refuse_unknown(SETTING, settings.dataset), Checksum()
        more = {
            "steps": counts_of(dataset)[1],
            "rows": dataset_transitions(
                config, DatasetReader(dataset), spec, checksum, see_returns
            ),
            "checksum": checksum,
            "grows": not config.trainer.offline,
        }
    buffer: ReplayBuffer = REPLAY_BUFFERS.build(settings, spec=spec, rng=rng, **more)
    return buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The objects of one run, built and not yet started."""

    parts: LearnerParts
    trainer: Trainer


def thread_budget(config: RunConfig, spec: EnvSpec) -> str:
    """Who computes with how many threads, as it is in effect now."""
    actors = actor_manager_config(config)
    return threads.thread_budget(
        torch=torch_threads(config, spec),
        blas=threads.blas_threads(),
        actors=num_actors(config),
        actor_manager=ACTOR_MANAGERS.entry_of(actors).name,
        cores=threads.available_cores(),
    )


def assemble(
    config: RunConfig,
    *,
    agent: Agent,
    factory: EnvFactory,
    judge: EvaluationRunner,
    recording: Recording,
    checkpoints: Checkpoints,
    clock: Clock,
    stop: StopFlag,
    save: SaveFlag,
    on_saved: Callable[[Mapping[str, float]], None],
) -> Assembly:
    """Builds the rest; nothing runs yet. Large memory is allocated here."""
    replay_buffer = build_replay_buffer(config, factory.spec, agent.observe_returns)
    observe_stored(agent, replay_buffer)
    actors = build_actors(config, agent, factory, clock)
    parts = LearnerParts(
        agent=agent,
        replay_buffer=replay_buffer,
        actors=actors,
        evaluation_runner=judge,
        checkpoints=checkpoints,
        recording=recording,
        clock=clock,
        stop=stop,
        save=save,
    )
    trainer: Trainer = TRAINERS.build(
        config.trainer,
        parts=parts,
        batch_size=config.agent.batch_size,
        slack=slack(config),
        observation=factory.spec.observation,
        starts_trained=config.init_from is not None,
        on_saved=on_saved,
    )
    return Assembly(parts=parts, trainer=trainer)
