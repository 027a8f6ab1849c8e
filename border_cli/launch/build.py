"""The parts of a run, each from its settings; the only file that knows every group."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from border_cli.actor_manager.actor import ActorFactory
from border_cli.actor_manager.weights import forms_of
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.torch_agent import TorchAgent
from border_cli.config.job import resolved_yaml
from border_cli.core.callback import Callback
from border_cli.core.interfaces import (
    ActorManager,
    Agent,
    EnvFactory,
    EvaluationRunner,
    Evaluator,
    GoalRewards,
    Policy,
    ReplayBuffer,
    StepProcessor,
)
from border_cli.core.output import Recorder, Recorders, RunInfo
from border_cli.core.returns import Moments
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.timing import Clock
from border_cli.env.config import GymConfig
from border_cli.env.construct import normalizing
from border_cli.errors import CheckpointError, ConfigError
from border_cli.evaluator.config import LOCAL
from border_cli.evaluator.episodes import EpisodesEvaluator
from border_cli.evaluator.runner import (
    Confirmation,
    EpisodesRecipe,
    EvaluationParts,
    InlineEvaluationRunner,
    PolicyRecipe,
)
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.trial import try_environments
from border_cli.nn.device import resolve_device
from border_cli.nn.matmul import matmul_line
from border_cli.nn.saving import load_state, save_state
from border_cli.registry import (
    ACTOR_MANAGERS,
    AGENTS,
    CALLBACKS,
    ENVS,
    EVALUATION_RUNNERS,
    EVALUATORS,
    GROUPS,
    RECORDERS,
    REPLAY_BUFFERS,
    STEP_PROCESSORS,
    TRAINERS,
    flat_settings,
)
from border_cli.replay_buffer.config import HindsightConfig, RolloutConfig
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.exported import opened_folder
from border_cli.run.finding import find_weights, read_model
from border_cli.run.folders import CheckpointFolders
from border_cli.run.sweep_folder import group_of
from border_cli.settings.run import EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import is_exported
from border_cli.trainer.evaluating import EpisodeLimit
from border_cli.trainer.trainer import LearnerParts, Trainer
from border_cli.words import counted

log = logging.getLogger(__name__)

OBSERVED = 4096  # transitions per call of `Agent.observe`


def env_factory(effective: EffectiveSettings) -> EnvFactory:
    """The recipe of the training environments."""
    if effective.env.id is None:
        raise ConfigError("env.id must be set: choose a preset such as env=cartpole, or env.id=…")
    factory: EnvFactory = ENVS.build(effective.env)
    return factory


def normalizing_wrappers(effective: EffectiveSettings) -> dict[str, str]:
    """Wrappers of `env.wrappers` that an agent's own setting should replace, with that setting."""
    env = effective.env
    return normalizing(env.wrappers) if isinstance(env, GymConfig) else {}


def build_agent(effective: EffectiveSettings, spec: EnvSpec, *, learns: bool = True) -> Agent:
    """The agent with its first weights; one that only acts needs no compiler."""
    config = effective.config
    settings = effective.agent
    if isinstance(settings, LearnerConfig) and not learns:
        settings = replace(settings, compile=False)
    agent: Agent = AGENTS.build(
        settings,
        spec=spec,
        device=config.device,
        seed=derived_seed(config.seed, Branch.LEARNER),
    )
    return agent


def computes_on_cuda(config: RunConfig) -> bool:
    """Whether the learner has a GPU of this machine."""
    return resolve_device(config.device).type == "cuda"


def matmul_of_agent(effective: EffectiveSettings, agent: Agent) -> list[tuple[str, str]]:
    """Whose products of matrices the updates take, titled; a GPU has its own."""
    settings = effective.config.agent
    if not isinstance(agent, TorchAgent) or not isinstance(settings, LearnerConfig):
        return []
    if agent.device.type != "cpu":
        return []
    return [("matmul", matmul_line(settings.matmul, settings.matmul_precision))]


def encoders_of(agent: Agent) -> list[tuple[str, str]]:
    """The convolutions before an agent's dense layers, titled: a line for each image."""
    if not isinstance(agent, TorchAgent):
        return []
    lines = []
    for key, each in agent.architecture.images.items():
        channels, height, width = each.shape
        axis = "first" if [*each.axes] == sorted(each.axes) else "last"
        name = f"{key}: " if key else ""
        of = f"{counted(channels, 'channel')} {axis}"
        lines.append(f"{name}{height} x {width}, {of}, network {each.network}")
    return [("images", "\n".join(lines))] if lines else []


def build_first_agent(effective: EffectiveSettings, spec: EnvSpec) -> Agent:
    """The agent that a run begins with: with the weights that `init_from` names, if it does."""
    init_from = effective.config.init_from
    if init_from is None:
        return build_agent(effective, spec)
    try:
        folder = Path(init_from).expanduser()
        if is_exported(folder):
            state = opened_folder(folder).weights()
        else:
            folder, state = read_model(
                partial(find_weights, folder), lambda found: load_state(found / "agent.pt")
            )
        agent = build_agent(effective, spec)
        agent.load_weights(state)
    except CheckpointError as error:
        raise CheckpointError(f"init_from={init_from}: {error}") from error
    log.info("starting from the weights in %s", folder)
    return agent


def build_evaluator(
    effective: EffectiveSettings,
    *,
    stop: StopFlag,
    heartbeat: Heartbeat,
    seed: int | None = None,
    factory: EnvFactory | None = None,
) -> Evaluator:
    """The evaluator; without `seed` its episodes are those of every evaluation of the run."""
    return _evaluator_recipe(effective, seed, factory)(stop=stop, heartbeat=heartbeat)


def _evaluator_recipe(
    effective: EffectiveSettings, seed: int | None = None, factory: EnvFactory | None = None
) -> Callable[..., Evaluator]:
    """Makes the evaluator from `stop` and `heartbeat`, here or in another process."""
    evaluator: Callable[..., Evaluator] = EVALUATORS.load(effective.config.evaluator)
    films = {"film_factory": film_factory(effective)} if effective.video_interval else {}
    return partial(
        evaluator,
        effective.evaluator,
        **films,
        factory=factory or ENVS.build(effective.evaluation_env),
        seed=derived_seed(effective.config.seed if seed is None else seed, Branch.EVALUATION),
    )


def film_factory(effective: EffectiveSettings) -> EnvFactory:
    """Makes the one environment of an evaluated episode that is filmed."""
    factory: EnvFactory = ENVS.build(replace(effective.evaluation_env, num_envs=1))
    return factory


def build_recorders(
    effective: EffectiveSettings,
    run_dir: Path,
    console: Any,
    best: tuple[float, int] | None = None,
    command: Sequence[str] = (),
) -> Recorders:
    """The recorders in the order of the config; `best` is the score of earlier attempts."""
    info = replace(run_info(effective, run_dir), best=best, command=command)
    chosen = effective.config.recorder.values()
    built: list[Recorder] = []
    if effective.video_interval:  # before those that take the files elsewhere
        # imported late, as below: few runs have films
        from border_cli.recorder.films import FilmFiles

        built.append(FilmFiles(run_dir))
    return [*built, *(RECORDERS.build(each, info=info, console=console) for each in chosen)]


def build_callbacks(config: RunConfig) -> dict[str, Callback]:
    """The callbacks in the order of the config, by their names there."""
    return {name: CALLBACKS.build(each) for name, each in config.callback.items()}


def run_info(effective: EffectiveSettings, run_dir: Path) -> RunInfo:
    """Facts of the run that recorders are built with."""
    config, trainer = effective.config, effective.config.trainer
    return RunInfo(
        name=config.name,
        run_dir=run_dir,
        max_opt_steps=trainer.max_opt_steps,
        max_env_steps=trainer.max_env_steps,
        max_time_s=trainer.max_time_s,
        quiet=config.quiet,
        samples=not trainer.offline,
        group=group_of(run_dir),
        settings=hyperparameters(config),
        resolved=resolved_yaml(config),
    )


def hyperparameters(config: RunConfig) -> dict[str, bool | float | str]:
    """The settings by which runs are compared, under the names by which they are typed.

    Where a run is written, and what it leaves there, is not one of them.
    """
    aside = {RECORDERS.group, CALLBACKS.group}
    kept = {*GROUPS, "seed", "device", "init_from"} - aside
    return {
        name: value if isinstance(value, bool | int | float) else _in_words(value)
        for name, value in flat_settings(config).items()
        if name.partition(".")[0] in kept
    }


def _in_words(value: object) -> str:
    return "null" if value is None else str(value)


def build_checkpoints(
    effective: EffectiveSettings, run_dir: Path, check_lock: Callable[[], None], clock: Clock
) -> CheckpointStore:
    """Writes the checkpoints; `check_lock` raises where the directory is no longer the run's."""
    settings = effective.config.checkpoint
    folders = CheckpointFolders(
        run_dir,
        keep=settings.keep,
        milestone_interval=settings.milestone_interval,
        save_state=save_state,
        check_lock=check_lock,
    )
    return CheckpointStore(folders, replay_buffer=settings.replay_buffer, clock=clock)


def build_evaluation_runner(
    effective: EffectiveSettings,
    agent: Agent,
    spec: EnvSpec,
    *,
    evaluator: Evaluator,
    stop: StopFlag,
    heartbeat: Heartbeat,
) -> EvaluationRunner:
    """Runs the evaluations; `evaluator` and `heartbeat` are for those inline."""
    trainer = effective.config.trainer
    confirmation = Confirmation(trainer.stop_at_score, trainer.stop_confirmations)
    make_policy = PolicyRecipe(agent.policy_factory, effective.config.seed)
    if not effective.evaluates_in_background(spec):
        return InlineEvaluationRunner(evaluator, make_policy, heartbeat, confirmation)
    config, where, episodes = effective.config, LOCAL, None
    if isinstance(evaluator, EpisodesEvaluator):
        where, spec = evaluator.config.where, evaluator.spec
        episodes = episodes_recipe(effective, evaluator, make_policy)
    parts = EvaluationParts(
        make_evaluator=_evaluator_recipe(effective),
        make_policy=make_policy,
        imports=config.imports,
        confirmation=confirmation,
        stop=stop,
        actors=effective.backend,
        episodes=episodes,
        modules=[each for _, each in modules_of_env(vars(effective.evaluation_env))],
        trial=partial(
            try_environments,
            "the environment of evaluations",
            ENVS.build(replace(effective.evaluation_env, num_envs=1)),
            spec,
            plays=config.env.probe,
        ),
    )
    if where == LOCAL:
        from border_cli.evaluator.background_runner import BackgroundEvaluationRunner

        return BackgroundEvaluationRunner.of(parts)
    runner: EvaluationRunner = EVALUATION_RUNNERS.load(where).of(parts)
    return runner


def build_episode_limit(
    effective: EffectiveSettings, evaluator: Evaluator, on_decided: Callable[[int], None]
) -> EpisodeLimit:
    """The limit of evaluated episodes, decided before the first evaluation if it is needed."""
    usual = 0
    dataset = effective.config.replay_buffer.dataset
    if effective.config.trainer.offline and dataset is not None:
        from border_cli.dataset.store import counts_of

        episodes, steps = counts_of(dataset)
        usual = math.ceil(steps / episodes)
    return EpisodeLimit(
        needed=evaluator.needs_episode_limit,
        num_envs=max(1, effective.num_envs),
        usual=usual,
        on_decided=on_decided,
    )


def episodes_recipe(
    effective: EffectiveSettings, evaluator: EpisodesEvaluator, make_policy: PolicyRecipe
) -> EpisodesRecipe:
    """The parts of evaluated episodes, for whoever plays them elsewhere."""
    settings, config = effective.evaluation_env, effective.config
    return EpisodesRecipe(
        run_name=config.name,
        config=evaluator.config,
        spec=evaluator.spec,
        make_factory=partial(_factory_of, ENVS.load(settings), settings),
        make_policy=make_policy,
        seed=derived_seed(config.seed, Branch.EVALUATION),
        imports=config.imports,
    )


def _factory_of(
    factory: Callable[[EnvConfig], EnvFactory], settings: EnvConfig, num_envs: int
) -> EnvFactory:
    """The factory of so many environments; in another process too, where the registry is empty."""
    return factory(replace(settings, num_envs=num_envs))


def evaluation_policy(effective: EffectiveSettings, agent: Agent) -> Policy:
    """A policy that evaluates the agent as it is."""
    policy = PolicyRecipe(agent.policy_factory, effective.config.seed)()
    policy.load_snapshot(agent.snapshot())
    return policy


def build_actors(
    effective: EffectiveSettings, agent: Agent, factory: EnvFactory, clock: Clock
) -> ActorManager:
    """The actors of the run; `NoActors` where it learns from a data set alone."""
    config = effective.config
    if config.trainer.offline:
        from border_cli.actor_manager.none import NoActors

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
        modules=[*config.imports, *(each for _, each in modules_of_env(vars(config.env)))],
        weight_forms=forms_of(agent.snapshot()),
        extras=effective.extras(factory.spec),
        returns_gamma=config.agent.gamma if config.agent.needs_returns else None,
        trial=partial(
            try_environments,
            f"env.id={config.env.id}",
            factory,
            factory.spec,
            plays=config.env.probe,
        ),
        run_name=config.name,
        stall_timeout_s=config.trainer.stall_timeout_s,
    )
    actors: ActorManager = ACTOR_MANAGERS.build(
        effective.actors, make_actor=make_actor, clock=clock
    )
    return actors


def build_goal_rewards(effective: EffectiveSettings) -> GoalRewards | None:
    """Computes rewards for other goals, if the replay buffer replaces goals; the caller closes it.
    Raises ConfigError where the environment has no goals."""
    if not isinstance(effective.config.replay_buffer, HindsightConfig):
        return None
    return env_factory(effective).goal_rewards()


def build_replay_buffer(
    effective: EffectiveSettings,
    spec: EnvSpec,
    see_returns: Callable[[Moments], None] | None = None,
    goal_rewards: GoalRewards | None = None,
) -> ReplayBuffer:
    """The replay buffer, with the transitions of its data set if it has one; large memory.

    `see_returns` is given the running discounted returns of the data set, if the agent needs them;
    `goal_rewards` is what `build_goal_rewards` gave.
    """
    config = effective.config
    settings = config.replay_buffer
    rng = generator(config.seed, Branch.REPLAY_BUFFER)
    # A replay buffer of a user's may not know any.
    extras = effective.extras(spec)
    more: dict[str, Any] = {"extras": extras} if extras else {}
    if settings.dataset is not None:
        from border_cli.launch.offline_data import dataset_rows

        more |= {"dataset": dataset_rows(effective, spec, see_returns)}
    if goal_rewards is not None:
        more |= {"goal_rewards": goal_rewards, "gamma": config.agent.gamma}
    if isinstance(settings, RolloutConfig):
        more |= {"num_envs": effective.num_envs}
    buffer: ReplayBuffer = REPLAY_BUFFERS.build(config.replay_buffer, spec=spec, rng=rng, **more)
    return buffer


def observe_stored(agent: Agent, replay_buffer: ReplayBuffer) -> None:
    """Lets the agent observe the transitions that are stored already, for its statistics."""
    if not agent.observes:
        return
    for first in range(0, len(replay_buffer), OBSERVED):
        index = np.arange(first, min(first + OBSERVED, len(replay_buffer)))
        agent.observe(replay_buffer.rows(index))


def build_trainer(effective: EffectiveSettings, parts: LearnerParts, spec: EnvSpec) -> Trainer:
    """The trainer with these parts, which are built and not yet started."""
    config = effective.config
    if config.agent.on_policy:
        from border_cli.trainer.rollouts import RolloutTrainer

        return RolloutTrainer(
            config.trainer, parts=parts, batch_size=config.agent.batch_size, spec=spec
        )
    trainer: Trainer = TRAINERS.build(
        config.trainer,
        parts=parts,
        batch_size=config.agent.batch_size,
        spec=spec,
        schedules=effective.schedules,
        **({"slack": effective.slack} if not config.trainer.offline else {}),
    )
    return trainer
