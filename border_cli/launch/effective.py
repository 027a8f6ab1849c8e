"""The settings of a run, resolved once: which actors there are and who steps them,
where evaluations run, and torch's threads."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.rows import EPISODE_COLUMN
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Column
from border_cli.errors import BorderError, ConfigError
from border_cli.evaluator.config import LOCAL, EpisodesConfig
from border_cli.registry import ACTOR_MANAGERS, AGENTS, REPLAY_BUFFERS
from border_cli.replay_buffer.config import DatasetConfig, rows_of_share
from border_cli.settings.run import (
    ActorManagerConfig,
    AgentConfig,
    EnvConfig,
    EvaluatorConfig,
    RunConfig,
)
from border_cli.settings.schedule import ENV_STEPS, Schedule, make_schedule
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
    actors: ActorManagerConfig  # trainer=sync and offline: serial, with n_buffer 1
    backend: str  # name of `actors`: serial, thread, process, or a user's

    @property
    def num_actors(self) -> int:
        """Number of actors; 0 where the run learns from a data set alone."""
        return 0 if self.config.trainer.offline else self.config.actor_manager.most_actors

    @cached_property
    def env(self) -> EnvConfig:
        """`env` of the actors; stepped one by one in a bit-reproducible run."""
        cores_each = available_cores() // max(1, self.num_actors)
        env = self.config.env.with_threads(max(1, cores_each))
        return env.one_by_one() if self.actors.in_learner_thread else env

    @property
    def slack(self) -> int:
        """Samples that actors may be ahead of the replay ratio: two full messages for each actor.

        One would be enough that none waits for ever. But what fills the messages of all actors is
        ahead, too, and at 32 actors in step with each other learner and actors would wait in turn.
        """
        actors = self.config.actor_manager
        return 2 * max(2, actors.most_actors) * actors.n_buffer

    @property
    def agent(self) -> AgentConfig:
        """The settings of the agent, with the steps of its schedules; those of an on-policy agent
        follow the share of the run that is done."""
        agent = self.config.agent
        return agent if agent.on_policy else self.config.trainer.with_steps(agent)

    @property
    def num_envs(self) -> int:
        """Environments of all actors."""
        return self.num_actors * self.env.num_envs

    def extras(self, spec: EnvSpec) -> list[Column]:
        """The columns of the run's rows beside those of all runs: those that its agent learns
        from, and the episode where its replay buffer needs it."""
        agent = self.config.agent
        extras = [*AGENTS.load(agent).extras(agent, spec)]
        if self.config.replay_buffer.needs_episodes:
            extras.append(EPISODE_COLUMN)
        return extras

    def evaluates_in_background(self, spec: EnvSpec) -> bool:
        """Whether evaluations run in a separate process, as set; where nothing is, if images take
        them long and a core may be free. When a result arrives then depends on the machine, so
        never in a bit-reproducible run."""
        asked, agent = self.config.evaluator.background, self.config.agent
        if self.actors.in_learner_thread or asked is not None:
            return bool(asked) and not self.actors.in_learner_thread
        if not isinstance(agent, LearnerConfig) or available_cores() < 2:
            return False
        images = agent.architecture(spec.observation).images.values()
        return any(each.network != "minatar_cnn" for each in images)

    @property
    def schedules(self) -> dict[str, tuple[str, Schedule]]:
        """All schedules that the run follows, by their typed names, each with its counter; without
        actors none that counts their env steps."""
        config = self.config
        return {
            f"{settings.path}.{name}": (counter, make_schedule(schedule))
            for settings in (self.agent, config.replay_buffer)
            for name, (counter, schedule) in settings.schedules.items()
            if not config.trainer.offline or counter != ENV_STEPS
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
        dataset = self.config.replay_buffer.dataset
        if settings.ref_min_score is not None or dataset is None:
            return settings
        from border_cli.dataset.store import reference_scores

        try:
            found = reference_scores(dataset)
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
        acting = () if config.trainer.offline else (config.env, config.actor_manager)
        stored = () if config.trainer.offline else (config.replay_buffer,)
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
    actors = config.actor_manager
    if config.trainer.synchronous or config.trainer.offline:
        actors = _serial(actors)
    _refuse_dataset(config)
    _refuse_elsewhere(config, actors)
    backend = ACTOR_MANAGERS.entry_of(actors).name
    return EffectiveSettings(config=config, actors=actors, backend=backend)


def _refuse_dataset(config: RunConfig) -> None:
    """Raises ConfigError where there is nothing to learn from, or where a batch would not have both
    the transitions of a data set and those of actors that `dataset_share` asks for."""
    buffer, batch_size = config.replay_buffer, config.agent.batch_size
    if config.trainer.offline and buffer.dataset is None and not isinstance(buffer, DatasetConfig):
        chosen = REPLAY_BUFFERS.entry_of(buffer).name
        raise ConfigError(
            f"trainer=offline needs replay_buffer=dataset, or {DATASET}=ID with another one, got "
            f"replay_buffer={chosen}"
        )
    share = buffer.dataset_share
    if share is None:
        return
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
