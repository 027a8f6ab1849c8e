"""The resolved settings of a run: its actors and what steps them, where evaluations run, and the
number of torch threads."""

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

DATASET = "replay_buffer.dataset"  # name of the setting in messages
DEFAULT = "default"  # value in evaluator.env.kwargs that restores a constructor default


@dataclass(frozen=True, kw_only=True)
class EffectiveSettings:
    """The settings of one run, with values that follow from several groups together.

    Immutable, like its `RunConfig`; any thread may read it. It stays in this process: other
    processes receive only the values that they need.
    """

    config: RunConfig  # as the user set them
    actors: ActorManagerConfig  # n_buffer 1 if sync or offline; serial if offline or no lockstep
    backend: str  # registered name of `actors`: serial, thread, process, ray, or a user's

    @property
    def num_actors(self) -> int:
        """Number of actors; 0 if the run learns from a data set alone."""
        return 0 if self.config.trainer.offline else self.config.actor_manager.most_actors

    @cached_property
    def env(self) -> EnvConfig:
        """`env` of the actors. Unless actors and learner run freely, its environments are by
        default stepped one by one."""
        cores_each = available_cores() // max(1, self.num_actors)
        env = self.config.env.with_threads(max(1, cores_each))
        return env.one_by_one() if self.reproducible or self.in_lockstep else env

    @property
    def reproducible(self) -> bool:
        """True if runs with the same seed are bit-identical on a CPU."""
        actors = self.actors
        return actors.in_learner_thread or (self.in_lockstep and actors.lockstep_repeats)

    @property
    def in_lockstep(self) -> bool:
        """True if actors outside the learner's thread step only while the learner waits."""
        return self.config.trainer.synchronous and not self.actors.in_learner_thread

    @property
    def slack(self) -> int:
        """The number of samples by which actors may run ahead of the replay ratio: two full
        messages per actor, and at least four.

        One message would avoid a deadlock, but if many actors sent partly filled messages at once,
        learner and actors would alternate. In lockstep that is not reproducible, they should: the
        result is one sample per environment and round.
        """
        if self.in_lockstep and not self.reproducible:
            return self.num_envs
        actors = self.config.actor_manager
        return 2 * max(2, actors.most_actors) * actors.n_buffer

    @property
    def agent(self) -> AgentConfig:
        """The settings of the agent with the lengths of its schedules. The schedules of an
        on-policy agent follow the fraction of the run that is done."""
        agent = self.config.agent
        return agent if agent.on_policy else self.config.trainer.with_steps(agent)

    @property
    def num_envs(self) -> int:
        """Number of environments of all actors together."""
        return self.num_actors * self.env.num_envs

    def extras(self, spec: EnvSpec) -> list[Column]:
        """Returns the optional columns of this run's rows: those that the agent learns from, and
        the episode number if the replay buffer needs it."""
        agent = self.config.agent
        extras = [*AGENTS.load(agent).extras(agent, spec)]
        if self.config.replay_buffer.needs_episodes:
            extras.append(EPISODE_COLUMN)
        return extras

    def evaluates_in_background(self, spec: EnvSpec) -> bool:
        """Returns whether evaluations run in a separate process. By default they do if images make
        them slow and a core may be free, but not in a bit-reproducible run, because the time at
        which a result arrives depends on the machine. Never true with actors in the learner's
        thread."""
        requested, agent = self.config.evaluator.background, self.config.agent
        if self.reproducible or requested is not None:
            return bool(requested) and not self.actors.in_learner_thread
        if not isinstance(agent, LearnerConfig) or available_cores() < 2:
            return False
        images = agent.architecture(spec.observation).images.values()
        return any(image.network != "minatar_cnn" for image in images)

    @property
    def schedules(self) -> dict[str, tuple[str, Schedule]]:
        """All schedules of the run by their command-line names, each with its counter. Without
        actors, there are no schedules over env steps."""
        config = self.config
        return {
            f"{settings.path}.{name}": (counter, make_schedule(schedule))
            for settings in (self.agent, config.replay_buffer)
            for name, (counter, schedule) in settings.schedules.items()
            if not config.trainer.offline or counter != ENV_STEPS
        }

    @property
    def video_interval(self) -> int:
        """Updates between films of evaluations; 0 means no films."""
        evaluator = self.config.evaluator
        return evaluator.video_interval if isinstance(evaluator, EpisodesConfig) else 0

    @cached_property
    def evaluation_env(self) -> EnvConfig:
        """`env` with the overrides of `evaluator.env`, whose `kwargs` are merged key by key. Has
        one environment per episode.

        Raises ConfigError if a value is out of range, but only at the first use.
        """
        settings, env = self.config.evaluator, self.config.env
        values = {**settings.env, "num_envs": settings.num_episodes}
        if "kwargs" in values:
            own, merged = values["kwargs"], {**getattr(env, "kwargs", {}), **values["kwargs"]}
            values["kwargs"] = {
                key: value for key, value in merged.items() if own.get(key) != DEFAULT
            }
        return replace(env, **values)

    @cached_property
    def evaluator(self) -> EvaluatorConfig:
        """The settings of the evaluator, with the reference scores of the data set if the settings
        have none."""
        settings = self.config.evaluator
        dataset = self.config.replay_buffer.dataset
        if settings.ref_min_score is not None or dataset is None:
            return settings
        from border_cli.dataset.store import reference_scores

        try:
            scores = reference_scores(dataset)
        except BorderError:  # evaluations do not need reference scores
            scores = None
        if scores is None:
            return settings
        return replace(settings, ref_min_score=scores[0], ref_max_score=scores[1])

    def with_episodes(self, num_episodes: int) -> EffectiveSettings:
        """Returns these settings with a different number of episodes per evaluation."""
        evaluator = replace(self.config.evaluator, num_episodes=num_episodes)
        return effective_settings(replace(self.config, evaluator=evaluator))

    def memory_settings(self) -> dict[str, Any]:
        """Returns the settings that increase the run's memory use, by their command-line names."""
        config = self.config
        acting = () if config.trainer.offline else (config.env, config.actor_manager)
        stored = () if config.trainer.offline else (config.replay_buffer,)
        parts = (*stored, config.agent, *acting, config.evaluator)
        return {name: value for part in parts for name, value in part.taking_memory().items()}

    @property
    def torch_threads(self) -> int:
        """Number of threads of an update."""
        agent = self.config.agent
        return (agent.num_threads or 1) if isinstance(agent, LearnerConfig) else 1


def effective_settings(config: RunConfig) -> EffectiveSettings:
    """Resolves the settings of a run. `config` must not be changed afterwards.

    Raises ConfigError if the actor settings are not of a registered type, if evaluations cannot run
    where they are requested, or if there is nothing to learn from.
    """
    actors = config.actor_manager
    if config.trainer.synchronous and actors.lockstep is not None:
        actors = replace(actors, n_buffer=1)
    elif config.trainer.synchronous or config.trainer.offline:
        actors = _serial(actors)
    _refuse_dataset(config)
    _refuse_elsewhere(config, actors)
    backend = ACTOR_MANAGERS.entry_of(actors).name
    return EffectiveSettings(config=config, actors=actors, backend=backend)


def _refuse_dataset(config: RunConfig) -> None:
    """Raises ConfigError if there is nothing to learn from, or if a batch with `dataset_share`
    would not contain both transitions of the data set and transitions of actors."""
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
    """Raises ConfigError if evaluations should run on other machines, but the settings require them
    to run locally."""
    evaluator = config.evaluator
    if not isinstance(evaluator, EpisodesConfig) or evaluator.where == LOCAL:
        return
    if evaluator.video_interval:
        raise ConfigError("evaluator.video_interval needs evaluator.where=local")
    if actors.in_learner_thread:
        raise ConfigError(
            f"evaluator.where={evaluator.where} needs actors beside the learner: runs with "
            "trainer=offline or actor_manager=serial always evaluate inline"
        )


def _serial(actors: ActorManagerConfig) -> ActorManagerConfig:
    """Returns settings for the same number of actors, stepped in turn in the learner's thread."""
    shared = {field.name: getattr(actors, field.name) for field in fields(ActorManagerConfig)}
    shared |= {"num_actors": actors.most_actors, "n_buffer": 1}
    serial: ActorManagerConfig = ACTOR_MANAGERS.entry("serial").config_type(**shared)
    return serial
