"""The dry build: environments are tried, and what is cheap is built once, before a run begins.

An environment is tried (`launch/trial.py`) as the one whose spaces are read and as its vector
implementation if the run uses one, with fixed seeds, and for hindsight replay `compute_reward`.
`evaluator.env` is tried if it differs, and environments of evaluations are constructed beside one
of training; a sweep tries equal settings once. What fails ends the affected jobs of a sweep, which
fail by themselves. What does not return within `stall_timeout_s` is interrupted and ends the
command, also a sweep; of a call that holds the GIL the monitor takes care. `env.probe=false` only
constructs one environment; a resume may change it.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from border_cli.checks.needs import USABLE, Needs, refuse_unmet, training_needs
from border_cli.config.job import Job
from border_cli.core.interfaces import Agent
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError, ProbeFailed
from border_cli.launch.build import (
    build_agent,
    build_first_agent,
    build_goal_rewards,
    env_factory,
    film_factory,
)
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.trial import called, lines_of, tried
from border_cli.messages import complain
from border_cli.nn.parameter_limit import parameters_within
from border_cli.process.monitor import STOP_GRACE_S, is_monitored, leave_now
from border_cli.process.signals import interrupt
from border_cli.registry import ENVS
from border_cli.replay_buffer.config import DatasetConfig
from border_cli.settings.run import EnvConfig, RunConfig
from border_cli.system.machine import free_memory, memory_for

TOGETHER = (
    "the constructor of several at once, for training and evaluations (evaluator.num_episodes, "
    "evaluator.env; trainer.eval_interval=0 evaluates after training, env.probe=false tries none),"
)

# What environments said of themselves as they were tried: a sweep mostly has one for all jobs.
Tried: TypeAlias = list[tuple[EnvConfig, EnvSpec]]


class DryBuilt(NamedTuple):
    """What dry builds of jobs have found."""

    jobs: list[Job]  # with what was found of their environments
    needs: list[Needs]  # of memory, of all jobs that differ in their components


def dry_built(
    jobs: Sequence[Job],
    refused: dict[int, ConfigError] | None = None,
    known: Tried | None = None,
) -> DryBuilt:
    """Dry builds, in which components refuse what only they can judge; jobs with the same
    components share one. Jobs that are refused are left out. Raises ConfigError where one of the
    others needs more memory than is free.

    Where there is a `refused`, it takes the refusals of a sweep by the jobs' numbers; else the
    first one raises. A job whose environment fails as it is tried fails by itself, and needs
    nothing.
    """
    made: dict[str, tuple[Needs | None, EnvSpec | None]] = {}
    known = [] if known is None else known
    kept: list[Job] = []
    for job in jobs:
        try:
            effective = effective_settings(job.config)
            like = _built_from(effective)
            if like not in made:
                made[like] = _built(job, effective, known)
            kept.append(_with_found(job, made[like][1]))
        except ConfigError as error:
            if refused is None or job.number is None:
                raise
            refused[job.number] = error
    needs = [needs for needs, _ in made.values() if needs is not None]
    refuse_unmet(needs)
    return DryBuilt(kept, needs)


def _built(
    job: Job, effective: EffectiveSettings, known: Tried
) -> tuple[Needs | None, EnvSpec | None]:
    """Memory of one job and the spec of its environment; neither for one of a sweep whose
    environment fails as it is tried."""
    try:
        effective, spec, agent = dry_build(effective, known)
    except ProbeFailed:
        if not job.in_sweep:
            raise
        return None, None
    return training_needs(effective, spec, agent, job.name), spec


def _with_found(job: Job, spec: EnvSpec | None) -> Job:
    return job if spec is None else replace(job, config=_settings_with_found(job.config, spec))


def _settings_with_found(config: RunConfig, spec: EnvSpec) -> RunConfig:
    """The settings with what was found as the environment was tried: action masks, and draws from
    global generators."""
    env = config.env
    if not isinstance(env, GymConfig):
        return config
    if has_masks(spec.observation):
        env = replace(env, action_mask=True)
    if spec.own_generators:
        env = replace(env, own_generators=True)
    return replace(config, env=env)


def _built_from(effective: EffectiveSettings) -> str:
    """Equal for runs whose dry builds are the same."""
    config, trainer = effective.config, effective.config.trainer
    built = (config.agent, config.env, config.step_processor, config.replay_buffer)
    more = (config.actor_manager, config.evaluator, config.device, config.init_from)
    return repr((built, more, type(trainer), trainer.stall_timeout_s, config.resume))


def dry_build(
    effective: EffectiveSettings, known: Tried
) -> tuple[EffectiveSettings, EnvSpec, Agent]:
    """Tries the environments, and builds what is cheap: agent and policies.

    Returns the settings with what was found of the environment, the agent and what it was built
    for, to be counted and dropped. Raises ClusterRefused where nothing answers at the address of a
    cluster, ConfigError for what only the components themselves can refuse, ProbeFailed where an
    environment failed as it was tried, and CheckpointError where `init_from` does not fit.
    """
    config = effective.config
    if not config.trainer.offline:
        effective.actors.refuse_missing()
    config.evaluator.refuse_missing()
    for recorder in config.recorder.values():
        recorder.refuse_missing()
    what = "the run does not fit in memory"
    with memory_for(what, effective.memory_settings(), ConfigError):
        effective, spec = _try_environments(effective, known)
        # The weights that a resumed run began with may be gone, and are not needed.
        build = build_first_agent if config.resume is None else build_agent
        with parameters_within(int(USABLE * free_memory())):
            agent = build(effective, spec)
        for actor_id in range(effective.num_actors):
            exploration = effective.actors.exploration_of(actor_id)
            agent.policy_factory(generator(effective.config.seed), exploration)
        return effective, spec, agent


def _try_environments(
    effective: EffectiveSettings, known: Tried
) -> tuple[EffectiveSettings, EnvSpec]:
    """All that the run has, and its data set against them."""
    config, timeout_s = effective.config, effective.config.trainer.stall_timeout_s
    env_factory(effective)  # refuses a run without an environment
    count = len(known)
    spec = _try(effective.env, timeout_s, known)
    effective = effective_settings(_settings_with_found(config, spec))
    buffer = config.replay_buffer
    if buffer.dataset is not None or isinstance(buffer, DatasetConfig):
        from border_cli.launch.offline_data import check_dataset

        check_dataset(effective, spec)
    with _call(f"env.id={spec.id}", timeout_s, "compute_reward, called with an empty info,"):
        goal_rewards = build_goal_rewards(effective)
    if goal_rewards is not None:
        goal_rewards.close()
    if config.evaluator.env:
        try:
            other = _try(replace(effective.evaluation_env, num_envs=1), timeout_s, known)
        except ConfigError as error:
            raise type(error)(f"evaluator.env: {error}") from error
        _refuse_other_masks(spec, other)
    if len(known) > count and config.env.probe:
        _try_together(effective, timeout_s)
    _check_film(effective)
    return effective, spec


def _try_together(effective: EffectiveSettings, timeout_s: float) -> None:
    """Constructs two environments of an evaluation, beside one of training where the run has both
    at once: of some simulators only one can run."""
    trainer = effective.config.trainer
    more = min(2, effective.config.evaluator.num_episodes)
    evaluates = ENVS.build(replace(effective.evaluation_env, num_envs=more))
    with _call(f"env.id={effective.env.id}", timeout_s, TOGETHER), ExitStack() as open_envs:
        if not trainer.offline and trainer.eval_interval:
            trains = ENVS.build(replace(effective.env, num_envs=1))
            open_envs.enter_context(closing(trains.make(training=True)))
        evaluates.make(training=False).close()


def _refuse_other_masks(spec: EnvSpec, other: EnvSpec) -> None:
    """Raises ConfigError where evaluations have action masks and the training none, or none where
    it has some."""
    masked = has_masks(other.observation)
    if has_masks(spec.observation) != masked:
        some, none = ("evaluation", "training") if masked else ("training", "evaluation")
        raise ConfigError(
            f"evaluator.env: the {some} environment has action masks and the {none} environment "
            "has none; env.action_mask=false ignores them"
        )


def _try(settings: EnvConfig, timeout_s: float, known: Tried) -> EnvSpec:
    """Constructs the environment of these settings; plays it too, unless `env.probe` is false."""
    for like, spec in known:
        if like == settings:
            return spec
    calls = partial(_call, f"env.id={settings.id}", timeout_s)
    spec = tried(ENVS.build(settings), calls, plays=settings.probe)
    known.append((settings, spec))
    return spec


@contextmanager
def _call(who: str, timeout_s: float, call: str) -> Iterator[None]:
    """The block of one call of an environment."""
    with in_time(who, call, timeout_s), called(who, call):
        yield


def _check_film(effective: EffectiveSettings) -> None:
    """Raises where films are due and nothing can be drawn."""
    if not effective.video_interval:
        return
    from border_cli.evaluator.film import require_pillow

    require_pillow("evaluator.video_interval")
    who, make = f"env.id={effective.evaluation_env.id}", film_factory(effective).make
    with (
        _call(who, effective.config.trainer.stall_timeout_s, "render"),
        closing(make(training=False, render="rgb_array")) as env,
    ):
        env.reset(derived_seed(0, Branch.PROBE, 0))
        env.frame()


@contextmanager
def in_time(who: str, call: str, timeout_s: float) -> Iterator[None]:
    """The block of a call that must return in time: else it is interrupted, and ConfigError says
    where it was. A command whose call cannot be interrupted ends as after a hang."""
    caller, hung, returned = threading.get_ident(), threading.Event(), threading.Event()
    what = f"{call} did not return within {timeout_s:g} s (trainer.stall_timeout_s); it is here:\n"

    def watch() -> None:
        if returned.wait(timeout_s):
            return
        hung.set()
        interrupt(caller)
        if is_monitored() and not returned.wait(STOP_GRACE_S):
            stack = [*traceback.walk_stack(sys._current_frames()[caller])]
            complain(who, what + lines_of(reversed(stack)).rstrip())
            leave_now(ConfigError.exit_status)

    watcher = threading.Thread(target=watch, name="trial", daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt as error:
        if not hung.is_set():
            raise
        lines = lines_of(traceback.walk_tb(error.__traceback__))
        raise ConfigError(f"{who}: {what}{lines}".rstrip()) from None
    finally:
        returned.set()
        watcher.join()
