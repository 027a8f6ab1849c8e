"""A sweep, from its checked jobs to the exit status of the command."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.cli.hydra_app import run_sweep
from border_cli.cli.job import make_probes, tried
from border_cli.cli.signals import stopping_a_sweep
from border_cli.cli.startup import collect_from_here
from border_cli.cli.sweep import Sweep
from border_cli.cli.task import Planned, SweepJobs, Task
from border_cli.cli.training_job import (
    JobContext,
    Outcome,
    RunJob,
    leave_now,
    train_job,
)
from border_cli.config.compose import Composer
from border_cli.config.jobs import OUR_LAUNCHER, RAY_LAUNCHER
from border_cli.config.sweep import LAUNCHER, SweepTerms
from border_cli.config.sweep_loader import SweepLoader
from border_cli.config.sweep_plan import in_common, sweep_job, sweep_plan
from border_cli.core.config import OnError, RunConfig
from border_cli.core.errors import ConfigError, Interrupted
from border_cli.core.machine import free_memory, usable_cores
from border_cli.core.words import counted, setting, size
from border_cli.launch.build import computes_on_cuda
from border_cli.launch.effective import EffectiveSettings
from border_cli.launch.needs import Needs, refuse_unmet

if TYPE_CHECKING:
    from border_cli.cli.processes import JobStarter

OURS = (OUR_LAUNCHER, RAY_LAUNCHER)  # which tell how each job ends

# Of a process that trains, besides what is counted: CartPole with two actors takes 270 MB.
PROCESS_NBYTES = 256 * 2**20


def run_command(
    composer: Composer,
    terms: SweepTerms,
    planned: Sequence[Planned],
    overrides: list[str],
    command: list[str],
    run_job: RunJob | None,
) -> None:
    """Runs the sweep and leaves with its status. `run_job` stands in for training."""
    config = planned[0].job.config if planned else composer.job(terms.fixed).config
    folders = {each.job.overrides: str(_inside(each, terms)) for each in planned}
    named = config.run_dir is not None
    loader = SweepLoader(composer, folders=folders, fixed=terms.fixed, named=named)
    if run_job is not None:
        task = Task(composer, planned, run_job, command)
        run_sweep(task, composer.config_name, overrides, loader, checked=bool(planned))
        return
    launcher = terms.launcher
    if launcher == OUR_LAUNCHER:
        from border_cli.cli.processes import start_server

        start_server()
    elif launcher == RAY_LAUNCHER:
        from border_cli.cli.ray_jobs import refuse_settings

        refuse_settings(terms.launcher_settings)
    refuse_unmet(needs := tried(planned, make_probes()))
    sweep = _sweep(terms, planned, command, launcher, config)
    at_once = _at_once(launcher, terms, len(planned), needs, config)
    common = _in_common(terms, planned, sweep, launcher, at_once)
    # Hydra composes the sweep once more, and with it the time of day in its directory.
    settings = [setting("hydra.sweep.dir", str(terms.root)), f"{LAUNCHER}={launcher}"]
    with _starter(launcher, terms, sweep, at_once) as starter:
        task = Task(composer, planned, _runner(sweep), command, common, starter)
        collect_from_here()
        sweep.begin()
        with _leaving(launcher, sweep):
            run_sweep(
                task,
                composer.config_name,
                [*overrides, *settings],
                loader,
                quiet=sweep.quiet or launcher in OURS,
                checked=bool(planned),
                ends_early=config.sweep.on_error == OnError.stop,
            )
    sys.exit(sweep.finish())


@contextmanager
def _starter(
    launcher: str, terms: SweepTerms, sweep: Sweep, at_once: int
) -> Iterator[JobStarter | None]:
    """What starts the processes of jobs, where the launcher is one of ours."""
    if launcher == OUR_LAUNCHER:
        from border_cli.cli.processes import ProcessStarter

        yield ProcessStarter(at_once)
    elif launcher == RAY_LAUNCHER:
        from border_cli.cli.ray_jobs import connected

        with connected(terms.launcher_settings, sweep.root) as starter:
            yield starter
    else:
        yield None


def _inside(planned: Planned, terms: SweepTerms) -> Path:
    return planned.job.folder.relative_to(terms.root)


def _sweep(
    terms: SweepTerms,
    planned: Sequence[Planned],
    command: list[str],
    launcher: str,
    config: RunConfig,
) -> Sweep:
    root = terms.root
    jobs = [
        sweep_job(
            number,
            each.job.overrides,
            str(_inside(each, terms)),
            objective=each.job.config.objective.value,
        )
        for number, each in enumerate(planned)
    ]
    plan = partial(sweep_plan, jobs, command=command, launcher=launcher, fixed=terms.fixed)
    quiet = all(each.job.config.quiet for each in planned) if planned else config.quiet
    return Sweep(root, plan, jobs=jobs, quiet=quiet)


def _in_common(
    terms: SweepTerms, planned: Sequence[Planned], sweep: Sweep, launcher: str, at_once: int
) -> SweepJobs:
    return SweepJobs(
        root=sweep.root,
        launcher=launcher,
        failed_value=terms.failed_value,
        at_once=at_once,
        fixed=tuple(in_common([each.job.overrides for each in planned]) or terms.fixed),
        quiet=sweep.quiet,
        pid=os.getpid(),
        host=platform.node(),
    )


def _at_once(
    launcher: str,
    terms: SweepTerms,
    num_jobs: int,
    needs: Sequence[Needs],
    config: RunConfig,
) -> int:
    """How many jobs share this machine at a time."""
    most = num_jobs or usable_cores()
    if launcher == OUR_LAUNCHER:
        return max(1, min(most, _processes(terms.launcher_settings.get("jobs"), needs, config)))
    if launcher == RAY_LAUNCHER:
        return terms.launcher_settings["jobs"] or num_jobs or sys.maxsize  # Ray divides the nodes
    if launcher == "joblib":
        from joblib import effective_n_jobs

        workers = int(effective_n_jobs(terms.launcher_settings.get("n_jobs", -1)))
        return max(1, min(most, workers))
    return most if launcher == "submitit_local" else 1


def _processes(asked: int | None, needs: Sequence[Needs], config: RunConfig) -> int:
    """Jobs of our own launcher at a time. Raises ConfigError where fewer fit into memory than were
    asked for."""
    if asked is not None and asked < 1:
        raise ConfigError(f"hydra.launcher.jobs must be null or at least 1, got {asked}")
    each = PROCESS_NBYTES + max((need.nbytes for need in needs), default=0)
    room = free_memory()
    fitting = int(room.nbytes // each)
    if asked is None:
        return max(1, min(1 if computes_on_cuda(config) else usable_cores(), fitting))
    if asked > max(1, fitting):
        raise ConfigError(
            f"hydra.launcher.jobs={asked}: {counted(asked, 'job')} at once need "
            f"{size(asked * each)} of memory, but {size(room.nbytes)} is available "
            f"({room.limit}): at most {fitting}"
        )
    return asked


@contextmanager
def _leaving(launcher: str, sweep: Sweep) -> Iterator[None]:
    """The block in which Hydra runs the jobs; whatever ends it, the table is made from the folders.

    Jobs in workers of somebody else's launcher are asked to save on the first Ctrl-C, and the
    launcher returns when they have. A scheduler's go on.
    """
    local = launcher in ("joblib", "submitit_local")
    with stopping_a_sweep(sweep.stop, sweep.kill) if local else nullcontext() as stopped:
        try:
            yield
        except SystemExit as left:  # an interruption, or Hydra's report of what failed
            sweep.finish()
            raise SystemExit(left.code or 1) from None
        except KeyboardInterrupt:
            sweep.finish()
            raise
    if stopped is not None and isinstance(stopped.reason, Interrupted):
        sweep.finish()
        raise SystemExit(stopped.reason.exit_status)


def _runner(sweep: Sweep) -> RunJob:
    """Runs a job in the command's own process; one that fails leaves the others alone.

    The objective of a failed job is NaN. An interruption ends the sweep after its job.
    """

    def leave(outcome: Outcome) -> None:
        sweep.finish()
        leave_now(outcome.exit_status)

    def run(effective: EffectiveSettings, context: JobContext) -> Outcome:
        outcome = train_job(effective, context, on_hung=leave)
        if outcome.threads_left:
            leave(outcome)
        if outcome.status == "interrupted":
            raise SystemExit(outcome.exit_status)
        return outcome

    return run
