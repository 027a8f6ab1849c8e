"""The dry build: environments are tried, and what is cheap is built once, before a run begins.

What would end the run is refused with the user's own lines.

`reset`, three `step`s, `reset` and `close`, in the environment whose spaces are read and in its
vector implementation if the run uses one, through the classes that training uses and with fixed
seeds, and for hindsight replay `compute_reward`. `evaluator.env` is tried if it differs; a sweep
tries equal settings once. A failure is one message: call, exception type and text, traceback lines
outside this package and Gymnasium. In a sweep it ends the affected jobs, each with a `run.json` in
its directory. A call that does not return within `stall_timeout_s` is reported with its stack and
ends the command, also a sweep; `train` is interrupted and raises. A call that holds the GIL is not
noticed here. `env.probe=false` only constructs the environment; a resume may change it.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Self

from border_cli.actor_manager.config import RayConfig
from border_cli.cluster.connection import (
    ClusterSettings,
    refuse_unreachable,
    refuse_without_ray,
)
from border_cli.core.config import EnvConfig
from border_cli.core.errors import BorderError, ConfigError, ProbeFailed
from border_cli.core.interfaces import Agent, EnvFactory
from border_cli.core.machine import out_of_memory
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.film import require_pillow
from border_cli.launch.build import (
    build_dry_agent,
    build_first_agent,
    build_goal_rewards,
    env_factory,
    film_factory,
)
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.offline_data import check_dataset
from border_cli.launch.trial import CONSTRUCTOR, called, is_ours, lines_of, play
from border_cli.registry import ENVS

log = logging.getLogger(__name__)

LOOKS = 4  # at a call in progress, within the time that it has


class Probes:
    """Tries each environment of a command once: a sweep mostly has one for all jobs.

    The thread that calls it plays. Another watches: `on_hung` is called there where a call of the
    environment does not return within `trainer.stall_timeout_s`.
    """

    def __init__(self, on_hung: Callable[[ProbeFailed], None]) -> None:
        self._on_hung = on_hung
        self._tried: list[tuple[EnvConfig, EnvSpec | ProbeFailed]] = []

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
        except ProbeFailed as error:
            raise ProbeFailed(f"evaluator.env: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"evaluator.env: {error}") from error

    def goals(self, effective: EffectiveSettings, spec: EnvSpec) -> None:
        """Raises where the replay buffer replaces goals and the environment does not say what other
        goals are worth; such an environment is tried for each job."""
        timeout_s = effective.config.trainer.stall_timeout_s
        with _Calls(f"env.id={spec.id}", timeout_s, self._on_hung) as calls:
            with calls("compute_reward"):
                goal_rewards = build_goal_rewards(effective, spec)
            if goal_rewards is not None:
                goal_rewards.close()

    def _of(self, settings: EnvConfig, factory: EnvFactory, timeout_s: float) -> EnvSpec:
        found = next((found for tried, found in self._tried if tried == settings), None)
        if found is None:
            try:
                found = self._try(settings, factory, timeout_s)
            except ProbeFailed as error:
                found = error
            self._tried.append((settings, found))
        if isinstance(found, ProbeFailed):
            raise found
        return found

    def _try(self, settings: EnvConfig, factory: EnvFactory, timeout_s: float) -> EnvSpec:
        with _Calls(f"env.id={settings.id}", timeout_s, self._on_hung) as calls:
            if not settings.probe:
                with calls(CONSTRUCTOR):
                    return factory.spec
            trials = factory.trials()
            while True:
                with calls(CONSTRUCTOR):
                    env, spec = next(trials, None), factory.spec
                if env is None:
                    return spec
                play(env, spec, calls)


class _Calls:
    """Names the call of an environment in progress; its thread finds one that hangs."""

    def __init__(self, who: str, timeout_s: float, on_hung: Callable[[ProbeFailed], None]) -> None:
        self._who = who
        self._timeout_s = timeout_s
        self._on_hung = on_hung
        self._call = CONSTRUCTOR
        self._made = 0
        self._hung: ProbeFailed | None = None
        self._player = threading.get_ident()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="probe's watch", daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._watcher.join()
        if self._hung is not None and isinstance(exc, KeyboardInterrupt):  # by `on_hung`
            raise self._hung from None

    @contextmanager
    def __call__(self, call: str) -> Iterator[None]:
        """The block in which the environment is called; what it raises becomes ProbeFailed."""
        self._call = call
        self._made += 1
        with called(self._who, call):
            yield

    def _watch(self) -> None:
        made, looks = -1, 0
        while not self._ended.wait(self._timeout_s / LOOKS):
            looks = looks + 1 if made == self._made else 0
            made = self._made
            if looks == LOOKS:
                self._hung = self._found_hung()
                self._on_hung(self._hung)
                return

    def _found_hung(self) -> ProbeFailed:
        frame = sys._current_frames().get(self._player)
        return ProbeFailed(
            f"{self._who}: {self._call} did not return within {self._timeout_s:g} s "
            "(trainer.stall_timeout_s)",
            f"; it is here:\n{lines_of(_inner_frames(frame))}".rstrip(),
        )


def _inner_frames(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    """Those of a thread that stand within the last one of ours, the innermost last."""
    inner = []
    for each, line in traceback.walk_stack(frame) if frame is not None else ():
        if is_ours(each):
            break
        inner.append((each, line))
    return reversed(inner)


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
    require_pillow("evaluator.video_interval")
    factory = film_factory(effective)
    env = factory.make(training=False, render="rgb_array")
    with closing(env), called(f"env.id={effective.evaluation_env.id}", "render"):
        env.reset(derived_seed(0, Branch.PROBE, 0))
        env.frame()


def _refuse_without_cluster(effective: EffectiveSettings) -> None:
    """Raises where Ray is not installed, or nothing answers at its address."""
    actors = effective.actors
    if effective.has_actors and isinstance(actors, RayConfig):
        refuse_without_ray("actor_manager=ray")
        refuse_unreachable(ClusterSettings(address=actors.address))
    evaluator = effective.config.evaluator
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
