"""The dry build: tries the environments, and builds agent and policies once, before a run starts.

The trial (`launch/trial.py`) steps the environment with fixed seeds, both as a single instance and
as its vector implementation if the run uses one. Hindsight replay: `compute_reward` is called, too.
`evaluator.env` is tried if it differs, and evaluation environments are constructed alongside one
for training. A sweep tries equal settings once if they pass, and otherwise for each job; a failure
affects only the jobs with them. A call that does not return within `stall_timeout_s` is interrupted
and ends the command, even a sweep without `sweep.skip_invalid`; the monitor handles calls that hold
the GIL. `env.probe=false` only constructs the environments, and may be changed on resume.
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

import numpy as np
from numpy.typing import NDArray

from border_cli.checks.needs import USABLE, Needs, refuse_unmet, training_needs
from border_cli.config.job import Job
from border_cli.core.interfaces import Agent
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.env.config import GymConfig
from border_cli.errors import CheckpointError, ConfigError, ProbeFailed
from border_cli.launch.build import (
    build_agent,
    build_first_agent,
    build_goal_rewards,
    env_factory,
    film_factory,
)
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.trial import convert_errors, lines_of, try_factory
from border_cli.messages import complain
from border_cli.nn.parameter_limit import parameters_within
from border_cli.process.monitor import STOP_GRACE_S, flush_and_exit, is_monitored
from border_cli.process.signals import interrupt
from border_cli.registry import ENVS
from border_cli.replay_buffer.config import DatasetConfig
from border_cli.run.run_folder import RunFolder
from border_cli.settings.run import EnvConfig, RunConfig
from border_cli.system.machine import free_memory, memory_for

TOGETHER = (
    "constructing several at once, for training and evaluation (evaluator.num_episodes, "
    "evaluator.env; trainer.eval_interval=0 evaluates after training, env.probe=false tries none),"
)

# Specs of the environments tried so far; most sweeps use one environment for all jobs.
Tried: TypeAlias = list[tuple[EnvConfig, EnvSpec]]


class DryBuilt(NamedTuple):
    """The results of the dry builds of several jobs."""

    jobs: list[Job]  # accepted jobs, whose settings include the properties found by the trial
    needs: list[Needs]  # memory needs, one entry per set of jobs with equal components


def dry_build_jobs(
    jobs: Sequence[Job],
    refused: dict[int, ConfigError] | None = None,
    tried_envs: Tried | None = None,
) -> DryBuilt:
    """Performs the dry builds, in which components reject settings that only they can check. Jobs
    with equal components share a build. Rejected jobs are left out. Raises ConfigError if one of
    the remaining jobs needs more memory than is free.

    The errors of rejected sweep jobs go to `refused`, by job number; without it the first one is
    raised. A sweep job whose environment fails its trial is not rejected here: it will fail when it
    runs, and counts as needing no memory.
    """
    builds: dict[str, tuple[Needs | None, EnvSpec | None]] = {}
    tried_envs = [] if tried_envs is None else tried_envs
    accepted: list[Job] = []
    for job in jobs:
        try:
            effective = effective_settings(job.config)
            resumes = resumes_earlier_run(job)
            key = _build_key(effective, resumes)
            if key not in builds:
                builds[key] = _build(job, effective, tried_envs, resumes=resumes)
            accepted.append(_add_findings(job, builds[key][1]))
        except (ConfigError, CheckpointError) as error:  # CheckpointError: `init_from` does not fit
            if refused is None or job.number is None:
                raise
            refused[job.number] = ConfigError(str(error))
    needs = [needs for needs, _ in builds.values() if needs is not None]
    refuse_unmet(needs)
    return DryBuilt(accepted, needs)


def _build(
    job: Job, effective: EffectiveSettings, tried_envs: Tried, *, resumes: bool
) -> tuple[Needs | None, EnvSpec | None]:
    """Returns the memory needs of a job and the spec of its environment; (None, None) for a sweep
    job whose environment fails its trial."""
    try:
        effective, spec, agent = dry_build(effective, tried_envs, resumes=resumes)
    except ProbeFailed:
        if not job.in_sweep:
            raise
        return None, None
    return training_needs(effective, spec, agent, job.name), spec


def _add_findings(job: Job, spec: EnvSpec | None) -> Job:
    return job if spec is None else replace(job, config=settings_with_findings(job.config, spec))


def settings_with_findings(config: RunConfig, spec: EnvSpec) -> RunConfig:
    """Returns the settings with the properties that the trial found: whether the environment has
    action masks, and whether it draws from global generators."""
    env = config.env
    if not isinstance(env, GymConfig):
        return config
    if has_masks(spec.observation):
        env = replace(env, action_mask=True)
    if spec.own_generators:
        env = replace(env, own_generators=True)
    return replace(config, env=env)


def _build_key(effective: EffectiveSettings, resumes: bool) -> str:
    """Returns a key that is equal for runs with the same dry build."""
    config, trainer = effective.config, effective.config.trainer
    built = (config.agent, config.env, config.step_processor, config.replay_buffer)
    used = (config.actor_manager, config.evaluator, config.recorder, config.device)
    weights = (config.init_from, resumes)
    return repr((built, used, type(trainer), trainer.stall_timeout_s, weights))


def resumes_earlier_run(job: Job) -> bool:
    """Returns whether a job starts from a checkpoint in its folder, or is finished."""
    folder = RunFolder(job.folder)
    return job.config.resume is not None and (folder.is_done or bool(folder.checkpoints))


def dry_build(
    effective: EffectiveSettings, tried_envs: Tried, *, resumes: bool
) -> tuple[EffectiveSettings, EnvSpec, Agent]:
    """Tries the environments, and builds the agent and the policies. A run that `resumes` does not
    need the weights of `init_from`.

    Returns the settings with the properties that the trial found, the spec of the environment, and
    the agent, which the caller only measures. Raises ClusterRefused if no cluster answers at its
    address, ConfigError for settings that a component rejects, ProbeFailed if an environment fails
    its trial, and CheckpointError if `init_from` does not fit.
    """
    config = effective.config
    if not config.trainer.offline:
        effective.actors.refuse_missing()
    config.evaluator.refuse_missing()
    for recorder in config.recorder.values():
        recorder.refuse_missing()
    message = "the run does not fit in memory"
    with memory_for(message, effective.memory_settings(), ConfigError):
        effective, spec = _try_environments(effective, tried_envs)
        # The weights that a resumed run started from may be gone.
        build = build_agent if resumes else build_first_agent
        with parameters_within(int(USABLE * free_memory())):
            agent = build(effective, spec)
        for actor_id in range(effective.num_actors):
            exploration = effective.actors.exploration_of(actor_id)
            agent.policy_factory(generator(effective.config.seed), exploration)
        return effective, spec, agent


def _try_environments(
    effective: EffectiveSettings, tried_envs: Tried
) -> tuple[EffectiveSettings, EnvSpec]:
    """Tries all environments of the run, and checks its data set against them."""
    config, timeout_s = effective.config, effective.config.trainer.stall_timeout_s
    env_factory(effective)  # refuses a run without an environment
    count = len(tried_envs)
    spec = try_env(effective.env, timeout_s, tried_envs)
    effective = effective_settings(settings_with_findings(config, spec))
    buffer = config.replay_buffer
    if buffer.dataset is not None or isinstance(buffer, DatasetConfig):
        from border_cli.launch.offline_data import check_dataset

        check_dataset(effective, spec)
    with guarded(f"env.id={spec.id}", timeout_s, "compute_reward, called with an empty info,"):
        goal_rewards = build_goal_rewards(effective)
    if goal_rewards is not None:
        goal_rewards.close()
    if config.evaluator.env:
        try:
            evaluation_env = replace(effective.evaluation_env.for_evaluation(), num_envs=1)
            eval_spec = try_env(evaluation_env, timeout_s, tried_envs)
        except ConfigError as error:
            kind = ProbeFailed if isinstance(error, ProbeFailed) else ConfigError
            raise kind(f"evaluator.env: {error}") from error
        _refuse_other_masks(spec, eval_spec)
    if len(tried_envs) > count and config.env.probe:
        _try_together(effective, timeout_s)
    _check_film(effective)
    return effective, spec


def _try_together(effective: EffectiveSettings, timeout_s: float) -> None:
    """Constructs evaluation environments (two, unless `num_episodes` is 1), beside a training
    environment if the run has both at once: some simulators allow only one instance."""
    trainer = effective.config.trainer
    num_envs = min(2, effective.config.evaluator.num_episodes)
    evaluation_factory = ENVS.build(replace(effective.evaluation_env, num_envs=num_envs))
    with guarded(f"env.id={effective.env.id}", timeout_s, TOGETHER), ExitStack() as open_envs:
        if not trainer.offline and trainer.eval_interval:
            training_factory = ENVS.build(replace(effective.env, num_envs=1))
            open_envs.enter_context(closing(training_factory.make(training=True)))
        evaluation_factory.make(training=False).close()


def _refuse_other_masks(spec: EnvSpec, eval_spec: EnvSpec) -> None:
    """Raises ConfigError if either the evaluation or the training environment has action masks and
    the other has none."""
    masked = has_masks(eval_spec.observation)
    if has_masks(spec.observation) != masked:
        with_masks, without = ("evaluation", "training") if masked else ("training", "evaluation")
        raise ConfigError(
            f"evaluator.env: the {with_masks} environment has action masks and the {without} "
            "environment has none; env.action_mask=false ignores them"
        )


def try_env(settings: EnvConfig, timeout_s: float, tried_envs: Tried) -> EnvSpec:
    """Constructs the environment of these settings, and steps it unless `env.probe` is false."""
    for tried_settings, spec in tried_envs:
        if tried_settings == settings:
            return spec
    calls = partial(guarded, f"env.id={settings.id}", timeout_s)
    spec = try_factory(ENVS.build(settings), calls, plays=settings.probe)
    tried_envs.append((settings, spec))
    return spec


@contextmanager
def guarded(subject: str, timeout_s: float, call: str) -> Iterator[None]:
    """Guards a call of an environment: limits its time and reports its errors."""
    with in_time(subject, call, timeout_s), convert_errors(subject, call):
        yield


def _check_film(effective: EffectiveSettings) -> None:
    """Raises if films are due but frames cannot be rendered or drawn on."""
    if not effective.video_interval:
        return
    from border_cli.evaluator.film import require_pillow

    require_pillow("evaluator.video_interval")
    render_frame(effective)


def render_frame(effective: EffectiveSettings) -> NDArray[np.uint8]:
    """Renders the first frame of an evaluation environment. [H, W, 3]"""
    subject, make = f"env.id={effective.evaluation_env.id}", film_factory(effective).make
    with (
        guarded(subject, effective.config.trainer.stall_timeout_s, "render"),
        closing(make(training=False, render="rgb_array")) as env,
    ):
        env.reset(derived_seed(0, Branch.PROBE, 0))
        return env.frame()


@contextmanager
def in_time(subject: str, call: str, timeout_s: float) -> Iterator[None]:
    """Limits the time of the call in the block. A call that exceeds it is interrupted, and the
    ConfigError contains its stack. If the call cannot be interrupted, a command exits, and a
    Python caller waits for it."""
    caller, hung, returned = threading.get_ident(), threading.Event(), threading.Event()
    message = f"{call} did not return within {timeout_s:g} s (trainer.stall_timeout_s); stuck at:\n"

    def watch() -> None:
        if returned.wait(timeout_s):
            return
        hung.set()
        interrupt(caller)
        if is_monitored() and not returned.wait(STOP_GRACE_S):
            stack = [*traceback.walk_stack(sys._current_frames()[caller])]
            complain(subject, message + lines_of(reversed(stack)).rstrip())
            flush_and_exit(ConfigError.exit_status)

    watcher = threading.Thread(target=watch, name="trial", daemon=True)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt as error:
        if not hung.is_set():
            raise
        lines = lines_of(traceback.walk_tb(error.__traceback__))
        raise ConfigError(f"{subject}: {message}{lines}".rstrip()) from None
    finally:
        returned.set()
        watcher.join()
