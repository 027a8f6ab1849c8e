"""Builds the parts of a run from their settings. The only module that depends on every config
group."""

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
from border_cli.agent.backend_choice import has_cuda
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.learning_agent import LearningAgent
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
from border_cli.core.state import load_state, save_state
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
from border_cli.nn.architecture import Image
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
    import_target,
)
from border_cli.replay_buffer.config import HindsightConfig, RolloutConfig
from border_cli.run.checkpoint import CheckpointStore
from border_cli.run.exported import open_export
from border_cli.run.finding import find_weights, read_model
from border_cli.run.folders import CheckpointFolders
from border_cli.run.sweep_folder import group_of
from border_cli.settings.run import EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import expand_user, is_exported
from border_cli.trainer.evaluating import EpisodeLimit
from border_cli.trainer.trainer import LearnerParts, Trainer
from border_cli.words import pluralize

log = logging.getLogger(__name__)

OBSERVED = 4096  # transitions per call of `Agent.observe`


def env_factory(effective: EffectiveSettings) -> EnvFactory:
    """Returns the factory of the training environments."""
    if effective.env.id is None:
        raise ConfigError("env.id must be set: choose a preset such as env=cartpole, or env.id=…")
    factory: EnvFactory = ENVS.build(effective.env)
    return factory


def normalizing_wrappers(effective: EffectiveSettings) -> dict[str, str]:
    """Maps the normalising wrappers in `env.wrappers` to the agent settings that should replace
    them."""
    env = effective.env
    return normalizing(env.wrappers) if isinstance(env, GymConfig) else {}


def build_agent(effective: EffectiveSettings, spec: EnvSpec, *, learns: bool = True) -> Agent:
    """Builds the agent with its initial weights. An agent that only acts is not compiled."""
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
    """Returns whether the learner uses a GPU of this machine."""
    return config.device.startswith("cuda") or (config.device == "auto" and has_cuda())


def backend_lines(agent: Agent) -> list[tuple[str, str]]:
    """Returns header lines on the backend of updates and on what computes its matrix products."""
    return agent.backend.describe() if isinstance(agent, LearningAgent) else []


def encoders_of(agent: Agent) -> list[tuple[str, str]]:
    """Returns a header entry with one line for each image that the agent encodes, if any."""
    if not isinstance(agent, LearningAgent):
        return []
    images = agent.architecture.images.items()
    lines = [f"{key}: {describe(image)}" if key else describe(image) for key, image in images]
    return [("images", "\n".join(lines))] if lines else []


def describe(image: Image) -> str:
    """Describes the size and layout of an image, and the network that encodes it."""
    channels, height, width = image.shape
    axis = "first" if [*image.axes] == sorted(image.axes) else "last"
    layout = f"{pluralize(channels, 'channel')} {axis}"
    return f"{height} x {width}, {layout}, network {image.network}"


def build_first_agent(effective: EffectiveSettings, spec: EnvSpec) -> Agent:
    """Builds the agent of a new run, with the weights from `init_from` if it is set."""
    init_from = effective.config.init_from
    if init_from is None:
        return build_agent(effective, spec)
    try:
        folder = expand_user(init_from)
        if is_exported(folder):
            state = open_export(folder).weights()
        else:
            folder, state = read_model(
                partial(find_weights, folder), lambda path: load_state(path / "agent.npz")
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
    """Builds the evaluator. Without `seed`, it plays the same episodes as every evaluation of the
    run."""
    return _evaluator_recipe(effective, seed, factory)(stop=stop, heartbeat=heartbeat)


def _evaluator_recipe(
    effective: EffectiveSettings, seed: int | None = None, factory: EnvFactory | None = None
) -> Callable[..., Evaluator]:
    """Returns a factory that builds the evaluator from `stop` and `heartbeat`, in any process."""
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
    """Returns the factory of the single environment in which filmed episodes are played."""
    factory: EnvFactory = ENVS.build(replace(effective.evaluation_env, num_envs=1))
    return factory


def build_recorders(
    effective: EffectiveSettings,
    run_dir: Path,
    console: Any,
    best: tuple[float, int] | None = None,
    command: Sequence[str] = (),
) -> Recorders:
    """Builds the recorders in the order of the config. `best`: the best score of earlier attempts
    and the update at which it was reached."""
    info = replace(run_info(effective, run_dir), best=best, command=command)
    chosen = effective.config.recorder.values()
    recorders: list[Recorder] = []
    if effective.video_interval:  # before recorders that upload these files
        # imported late: few runs record films
        from border_cli.recorder.films import FilmFiles

        recorders.append(FilmFiles(run_dir))
    return [*recorders, *(RECORDERS.build(choice, info=info, console=console) for choice in chosen)]


def build_callbacks(config: RunConfig) -> dict[str, Callback]:
    """Builds the callbacks in the order of the config, keyed by their names there."""
    return {name: CALLBACKS.build(settings) for name, settings in config.callback.items()}


def run_info(effective: EffectiveSettings, run_dir: Path) -> RunInfo:
    """Returns the facts of the run that recorders receive."""
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
    """Returns the settings by which runs are compared, under their command-line names.

    Settings of where and how a run is recorded are not included.
    """
    excluded = {RECORDERS.group, CALLBACKS.group}
    groups = {*GROUPS, "seed", "device", "init_from"} - excluded
    return {
        name: value if isinstance(value, bool | int | float) else _to_text(value)
        for name, value in flat_settings(config).items()
        if name.partition(".")[0] in groups
    }


def _to_text(value: object) -> str:
    return "null" if value is None else str(value)


def build_checkpoints(
    effective: EffectiveSettings, run_dir: Path, check_lock: Callable[[], None], clock: Clock
) -> CheckpointStore:
    """Builds the store that writes checkpoints; `check_lock` raises if the run has lost its
    directory."""
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
    """Builds the evaluation runner. Only inline evaluations run `evaluator` and use `heartbeat`."""
    trainer = effective.config.trainer
    confirmation = Confirmation(trainer.stop_at_score, trainer.stop_confirmations)
    make_policy = PolicyRecipe(agent.policy_factory, effective.config.seed)
    if not effective.evaluates_in_background(spec):
        return InlineEvaluationRunner(evaluator, make_policy, heartbeat, confirmation)
    config, location, episodes = effective.config, LOCAL, None
    if isinstance(evaluator, EpisodesEvaluator):
        location, spec = evaluator.config.where, evaluator.spec
        episodes = episodes_recipe(effective, evaluator, make_policy)
    parts = EvaluationParts(
        make_evaluator=_evaluator_recipe(effective),
        make_policy=make_policy,
        imports=config.imports,
        confirmation=confirmation,
        stop=stop,
        actors=effective.backend,
        episodes=episodes,
        modules=[module for _, module in modules_of_env(vars(effective.evaluation_env))],
        trial=partial(
            try_environments,
            "the environment of evaluations",
            ENVS.build(replace(effective.evaluation_env.for_evaluation(), num_envs=1)),
            spec,
            plays=config.env.probe,
        ),
    )
    if location == LOCAL:
        from border_cli.evaluator.background_runner import BackgroundEvaluationRunner

        return BackgroundEvaluationRunner.of(parts)
    runner: EvaluationRunner = EVALUATION_RUNNERS.load(location).of(parts)
    return runner


def build_episode_limit(
    effective: EffectiveSettings, evaluator: Evaluator, on_decided: Callable[[int], None]
) -> EpisodeLimit:
    """Builds the length limit of evaluation episodes. If one is needed, it is chosen before the
    first evaluation."""
    mean_length = 0
    dataset = effective.config.replay_buffer.dataset
    if effective.config.trainer.offline and dataset is not None:
        from border_cli.dataset.store import counts_of

        episodes, steps = counts_of(dataset)
        mean_length = math.ceil(steps / episodes)
    return EpisodeLimit(
        needed=evaluator.needs_episode_limit,
        num_envs=max(1, effective.num_envs),
        mean_length=mean_length,
        on_decided=on_decided,
    )


def episodes_recipe(
    effective: EffectiveSettings, evaluator: EpisodesEvaluator, make_policy: PolicyRecipe
) -> EpisodesRecipe:
    """Returns the parts that are needed to play evaluation episodes in other processes."""
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
    """Returns the factory of `num_envs` environments, even in processes with an empty registry."""
    return factory(replace(settings, num_envs=num_envs))


def evaluation_policy(effective: EffectiveSettings, agent: Agent) -> Policy:
    """Returns a policy with the agent's current weights, for evaluation."""
    policy = PolicyRecipe(agent.policy_factory, effective.config.seed)()
    policy.load_snapshot(agent.snapshot())
    return policy


def build_actors(
    effective: EffectiveSettings, agent: Agent, factory: EnvFactory, clock: Clock
) -> ActorManager:
    """Builds the actors of the run, or `NoActors` if it learns from a data set alone."""
    config = effective.config
    if config.trainer.offline:
        from border_cli.actor_manager.none import NoActors

        return NoActors()
    # The class itself, because the registry is empty in another process.
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
        modules=[  # also those of evaluations, which may run on the same cluster
            *config.imports,
            *(module for _, module in modules_of_env(vars(config.env))),
            *(module for _, module in modules_of_env(vars(effective.evaluation_env))),
        ],
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
        num_envs=config.env.num_envs,
    )
    settings, manager = effective.actors, ACTOR_MANAGERS.load(effective.actors)
    if config.trainer.synchronous and settings.lockstep is not None:
        manager = import_target(settings.lockstep)
    actors: ActorManager = manager(settings, make_actor=make_actor, clock=clock)
    return actors


def build_goal_rewards(effective: EffectiveSettings) -> GoalRewards | None:
    """Builds the object that computes rewards for substituted goals, or returns None if the replay
    buffer does not replace goals. The caller closes it. Raises ConfigError if the environment has
    no goals."""
    if not isinstance(effective.config.replay_buffer, HindsightConfig):
        return None
    return env_factory(effective).goal_rewards()


def build_replay_buffer(
    effective: EffectiveSettings,
    spec: EnvSpec,
    observe_returns: Callable[[Moments], None] | None = None,
    goal_rewards: GoalRewards | None = None,
) -> ReplayBuffer:
    """Builds the replay buffer and fills it with its data set, if there is one. Needs much memory.

    `observe_returns` receives statistics of the data set's running discounted returns, if the agent
    needs them; `goal_rewards` comes from `build_goal_rewards`.
    """
    config = effective.config
    settings = config.replay_buffer
    rng = generator(config.seed, Branch.REPLAY_BUFFER)
    # A user's replay buffer may not accept `extras`.
    extras = effective.extras(spec)
    options: dict[str, Any] = {"extras": extras} if extras else {}
    if settings.dataset is not None:
        from border_cli.launch.offline_data import dataset_rows

        options |= {"dataset": dataset_rows(effective, spec, observe_returns)}
    if goal_rewards is not None:
        options |= {"goal_rewards": goal_rewards, "gamma": config.agent.gamma}
    if isinstance(settings, RolloutConfig):
        options |= {"num_envs": effective.num_envs}
    buffer: ReplayBuffer = REPLAY_BUFFERS.build(config.replay_buffer, spec=spec, rng=rng, **options)
    return buffer


def observe_stored(agent: Agent, replay_buffer: ReplayBuffer) -> None:
    """Updates the agent's statistics with the transitions that are already stored."""
    if not agent.observes:
        return
    for first in range(0, len(replay_buffer), OBSERVED):
        index = np.arange(first, min(first + OBSERVED, len(replay_buffer)))
        agent.observe(replay_buffer.rows(index))


def build_trainer(effective: EffectiveSettings, parts: LearnerParts, spec: EnvSpec) -> Trainer:
    """Builds the trainer from parts that are built but not started."""
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
