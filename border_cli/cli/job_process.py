"""A job of a sweep in a process of its own: what that runs, and what it tells the command."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omegaconf import DictConfig, open_dict

from border_cli.cli.monitor import monitored
from border_cli.cli.startup import set_up_threads
from border_cli.cli.task import OUTPUT, Planned, Task
from border_cli.cli.training_job import JobContext, JobControl, Outcome, train_job
from border_cli.config.job import Job
from border_cli.config.resuming import Found
from border_cli.config.sources import VERSION_BASE
from border_cli.config.sweep_loader import SweepLoader
from border_cli.core.errors import Interrupted
from border_cli.core.output import Progress, Recorder, RecordStep
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.core.threads import share_cores
from border_cli.core.types import Metrics
from border_cli.launch.build import run_info
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.process.child import Pipe
from border_cli.process.start import unpack
from border_cli.recorder.panel import RunView

# Messages of the process, and the command's two.
PROGRESS: Final = "progress"  # a JobProgress
ENDED: Final = "ended"  # status, score, reason
STOP: Final = "stop"  # the number of a signal
SAVE: Final = "save"

TELL_EVERY_S = 0.5  # of run time


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """What a job is made from; the loader first, so that modules of the user are found."""

    loader: SweepLoader
    task: Task
    config: DictConfig  # of the sweep
    overrides: list[str]
    number: int
    job: Job | None  # as it was checked; None: its sweeper invented it
    at_once: int  # jobs that share the cores
    cores: int | None  # that it has of them; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """How far a job is."""

    phase: str
    opt_steps: int
    fraction: float | None  # of its nearest limit
    left_s: float | None
    score: float | None  # of the last evaluation
    best: float | None
    rate: float | None  # updates per second


def run(folder: str, packed: bytes, pipe: Pipe) -> None:
    """The process: one job, then it ends."""
    _print_into(Path(folder))
    with monitored("border-train"):  # whose words go to that file, too
        set_up_threads()
        parts: JobParts = unpack(packed)
        share_cores(parts.at_once, parts.cores)
        control = JobControl(in_worker=True)
        listener = threading.Thread(
            target=_listen, args=(pipe, control.stop, control.save), name="orders", daemon=True
        )
        listener.start()
        _run_job(parts, control, pipe)


def _print_into(folder: Path) -> None:
    """What this process prints goes to a file of the job from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        with suppress(OSError, ValueError):
            stream.flush()
        os.dup2(file, descriptor)
    os.close(file)


def _listen(pipe: Pipe, stop: StopFlag, save: SaveFlag) -> None:
    """Does what the command says until it has ended, and this process with it."""
    try:
        while True:
            word, *values = pipe.receive()
            if word == STOP:
                stop.request(Interrupted(values[0]))
            elif word == SAVE:
                save.request()
    except (EOFError, OSError):
        return


def _run_job(parts: JobParts, control: JobControl, pipe: Pipe) -> None:
    """What Hydra's own launchers do for a job."""
    import hydra
    from hydra._internal.callbacks import Callbacks
    from hydra.core.utils import JobRuntime, run_job, setup_globals
    from hydra.types import HydraContext

    setup_globals()
    hydra.version.setbase(VERSION_BASE["version_base"])
    JobRuntime.instance().set("name", "border-train")

    def run_here(effective: EffectiveSettings, context: JobContext) -> Outcome:
        watcher = Watcher(pipe, RunView(run_info(effective, context.run_dir)))
        watched = JobControl(
            stop=control.stop, save=control.save, recorders=[watcher], in_worker=True
        )
        outcome = train_job(effective, context, on_hung=lambda _: None, control=watched)
        _tell(pipe, outcome)
        return outcome

    known = []
    if parts.job is not None:
        effective = effective_settings(parts.job.config)
        known = [Planned(parts.job, Found(), effective)]
    parts.task.adopt(known, run_here)
    config = parts.loader.load_sweep_config(parts.config, parts.overrides)
    with open_dict(config.hydra.job):
        config.hydra.job.num = parts.number
        config.hydra.job.id = str(parts.number)
    run_job(
        hydra_context=HydraContext(config_loader=parts.loader, callbacks=Callbacks(parts.config)),
        task_function=parts.task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _tell(pipe: Pipe, outcome: Outcome) -> None:
    pipe.send(ENDED, outcome.status, outcome.score, outcome.reason)


class Watcher(Recorder):
    """Tells the command how far the run is; owned by the learner's thread."""

    def __init__(self, pipe: Pipe, view: RunView) -> None:
        self._pipe = pipe
        self._view = view
        self._told_s = -TELL_EVERY_S
        self._phase = ""

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        view = self._view
        view.take_progress(progress)
        if progress.step.time_s < self._told_s + TELL_EVERY_S and progress.phase == self._phase:
            return
        self._told_s, self._phase = progress.step.time_s, progress.phase
        nearest = view.nearest_budget()
        self._pipe.send(
            PROGRESS,
            JobProgress(
                phase=view.phase,
                opt_steps=view.step.opt_steps,
                fraction=nearest.fraction if nearest else None,
                left_s=nearest.left_s if nearest else None,
                score=view.value("eval/return"),
                best=view.best[0] if view.best else None,
                rate=view.rates().updates,
            ),
        )

    def close(self) -> None:
        """Its last words are those of the job."""
