"""The dry build: environments are tried, and what is cheap is built once, before a run begins.

An environment is tried (`launch/trial.py`) as the one whose spaces are read and as its vector
implementation if the run uses one, with fixed seeds, and for hindsight replay `compute_reward`.
`evaluator.env` is tried if it differs; a sweep tries equal settings once. What fails ends the
affected jobs of a sweep, which fail by themselves. What does not return within
`stall_timeout_s` ends the command, also a sweep; `train` is interrupted and raises.
`env.probe=false` only constructs the environment; a resume may change it. What draws films,
asks a cluster or reads a data set is imported by the checks of runs that have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from border_cli.actor_manager.config import RayConfig
from border_cli.core.config import EnvConfig
from border_cli.core.errors import BorderError, ConfigError, ProbeFailed
from border_cli.core.interfaces import Agent, EnvFactory
from border_cli.core.machine import out_of_memory
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch.build import (
    build_dry_agent,
    build_first_agent,
    build_goal_rewards,
    env_factory,
    film_factory,
)
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.trial import called, in_time, tried
from border_cli.registry import ENVS
from border_cli.replay_buffer.config import DatasetConfig

log = logging.getLogger(__name__)


class Probes:
    """Tries each environment of a command once: a sweep mostly has one for all jobs.

    The thread that calls it plays. Another watches: `on_hung` is called there where a call of the
    environment does not return within `trainer.stall_timeout_s`.
    """

    def __init__(self, on_hung: Callable[[ProbeFailed], None]) -> None:
        self._on_hung = on_hung
        self._tried: list[tuple[EnvConfig, EnvSpec]] = []

    def training(self, effective: EffectiveSettings) -> EnvSpec:
        """What the training environment says of itself.

        Raises ProbeFailed where it failed as it was tried, and ConfigError where its settings are
        refused. Where `env.probe` is false, it is constructed and not played.
        """
        timeout_s = effective.config.trainer.stall_timeout_s
        return self._of(effective.config.env, env_factory(effective), timeout_s)

    def evaluation(self, effective: EffectiveSettings) -> None:
        """Raises the same for the evaluator's environment, where its settings are others."""
        if not effective.config.evaluator.env:
            return
        settings = replace(effective.evaluation_env, num_envs=1)
        try:
            self._of(settings, ENVS.build(settings), effective.config.trainer.stall_timeout_s)
        except ConfigError as error:
            kind = ProbeFailed if isinstance(error, ProbeFailed) else ConfigError
            raise kind(f"evaluator.env: {error}") from error

    def goals(self, effective: EffectiveSettings, spec: EnvSpec) -> None:
        """Raises where the replay buffer replaces goals and the environment does not say what other
        goals are worth; such an environment is tried for each job."""
        timeout_s = effective.config.trainer.stall_timeout_s
        with self._call(f"env.id={spec.id}", timeout_s, "compute_reward"):
            goal_rewards = build_goal_rewards(effective)
        if goal_rewards is not None:
            goal_rewards.close()

    def _of(self, settings: EnvConfig, factory: EnvFactory, timeout_s: float) -> EnvSpec:
        for like, spec in self._tried:
            if like == settings:
                return spec
        calls = partial(self._call, f"env.id={settings.id}", timeout_s)
        spec = tried(factory, calls, plays=settings.probe)
        self._tried.append((settings, spec))
        return spec

    @contextmanager
    def _call(self, who: str, timeout_s: float, call: str) -> Iterator[None]:
        with in_time(who, call, timeout_s, self._on_hung), called(who, call):
            yield


def dry_build(effective: EffectiveSettings, probes: Probes) -> tuple[EnvSpec, Agent] | None:
    """Tries the environments, builds what is cheap, and refuses most: agent and policies.

    Returns the agent and what it was built for, to be counted and dropped; None where they could
    not be built.

    Raises ClusterRefused where nothing answers at the address of a cluster, ConfigError for what
    only the components themselves can refuse, ProbeFailed where an environment failed as it was
    tried, and CheckpointError where `init_from` does not fit. Any other failure is left to the run,
    which reports it with its traceback.
    """
    _refuse_without_cluster(effective)
    try:
        spec = probes.training(effective)
        if isinstance(effective.config.replay_buffer, DatasetConfig):
            from border_cli.launch.offline_data import check_dataset

            check_dataset(effective, spec)
        probes.goals(effective, spec)
        probes.evaluation(effective)
        _check_film(effective)
        if effective.config.resume is None:
            agent = build_first_agent(effective, spec, build_dry_agent)
        else:  # the weights that it began with may be gone, and are not needed
            agent = build_dry_agent(effective, spec)
        for exploration in _explorations(effective):
            agent.policy_factory(generator(effective.config.seed), exploration)
    except BorderError:
        raise
    except Exception as error:
        refused = out_of_memory(
            error, "the run does not fit in memory", effective.memory_settings(), ConfigError
        )
        if refused is not None:
            raise refused from error
        log.debug("the pre-flight check failed; the run will report the error", exc_info=True)
        return None
    return spec, agent


def _check_film(effective: EffectiveSettings) -> None:
    """Raises where films are due and nothing can be drawn."""
    if not effective.video_interval:
        return
    from border_cli.evaluator.film import require_pillow

    require_pillow("evaluator.video_interval")
    factory = film_factory(effective)
    env = factory.make(training=False, render="rgb_array")
    with closing(env), called(f"env.id={effective.evaluation_env.id}", "render"):
        env.reset(derived_seed(0, Branch.PROBE, 0))
        env.frame()


def _refuse_without_cluster(effective: EffectiveSettings) -> None:
    """Raises where Ray is not installed, or nothing answers at its address."""
    actors, evaluator = effective.actors, effective.config.evaluator
    if not (isinstance(actors, RayConfig) or effective.evaluates_on_ray):
        return
    from border_cli.cluster.connection import (
        ClusterSettings,
        refuse_unreachable,
        refuse_without_ray,
    )

    if effective.has_actors and isinstance(actors, RayConfig):
        refuse_without_ray("actor_manager=ray")
        refuse_unreachable(ClusterSettings(address=actors.address))
    if effective.evaluates_on_ray and isinstance(evaluator, EpisodesConfig):
        refuse_without_ray("evaluator.where=ray")
        own = ClusterSettings(address=evaluator.address, setting="evaluator.address")
        refuse_unreachable(own)


def _explorations(effective: EffectiveSettings) -> set[float | None]:
    """Those of the actors, each once: a million actors have few."""
    actors, settings = range(effective.num_actors), effective.actors
    ends = [*actors[:1], *actors[-1:]]  # of ape_x, whose constants lie between two that are valid
    spread = settings.exploration == "ape_x"
    return {settings.exploration_of(i) for i in (ends if spread else actors)}
