"""A study while a command works on it: whenever a process is free, a run of the most useful trial.

The runs of a trial come to a rung together; no trial waits for another one.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError, Interrupted, RunFailed, reason_of
from border_cli.launch.jobs import FINISHED, check_jobs
from border_cli.launch.startup import collect_from_here
from border_cli.run.status import read_run
from border_cli.settings.run import RunConfig
from border_cli.sweep.panel import JobView
from border_cli.sweep.plan import OUR_LAUNCHER
from border_cli.sweep.processes import LocalProcess, Processes
from border_cli.sweep.request import Terms
from border_cli.system.machine import usable_cores
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import What
from border_cli.tune.runs import Runs, budget_of
from border_cli.tune.space import Space, check_space, read_space
from border_cli.tune.store import opened
from border_cli.tune.study import Training, Trials, begun, described
from border_cli.tune.table import StudyPanel
from border_cli.words import size

STUDY_DB = "study.db"
FRESH = 1000  # the first of the fresh seeds
ASK_S = 2.0  # between two looks at what others do while there is nothing to do
MOST_DEATHS = 3  # of the processes of one run, after which its trial fails
LEAST_FREE_NBYTES = 2**26  # of the disk; what fails with less is not the trial's fault


def tune(
    composer: Composer, overrides: Sequence[str], config: TuneConfig, command: Sequence[str]
) -> None:
    """Works on the study that a command asks for.

    Raises ConfigError where it is refused, SystemExit where it was interrupted.
    """
    root = Path(config.study)
    base = replace(composer.job(overrides), folder=root, command=tuple(command))
    space = searched(composer, base.config, overrides, config.search)
    check_jobs(composer, [base])
    check_space(composer, space, overrides)
    budget = budget_of(base.config)
    study, there = begun(root, described(config, space, base, budget, overrides))
    runs = Runs(
        composer=composer,
        terms=sweep_terms(composer, overrides, OUR_LAUNCHER),
        overrides=overrides,
        budget=budget,
        root=root,
        command=command,
    )
    url = config.storage or f"sqlite:///{root / STUDY_DB}"
    with opened(url, study.name, study.id, begun=there) as store:
        panel = StudyPanel(study)
        trials = Trials(study, store, config, runs, panel.event)
        collect_from_here()
        Tuning(trials, space, runs, panel, config.jobs or usable_cores()).run()


def searched(
    composer: Composer, base: RunConfig, overrides: Sequence[str], name: str | None
) -> Space:
    """The space of a study: that of its agent unless another is named; what is typed is fixed."""
    with composer.opened() as files:
        return read_space(files, name or base.agent.option or "").without(overrides)


@dataclass(slots=True)
class Crew:
    """Runs that belong together: those of a trial on its way to a rung, or of the winner."""

    jobs: Sequence[Job]
    done: Callable[[Sequence[Path]], None]  # given the folders of the runs
    failed: Callable[[str], None]  # given a reason
    training: Training | None = None
    waiting: list[Job] = field(init=False)
    left: set[Path] = field(init=False)  # folders of runs that have not ended
    deaths: Counter[Path] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = list(self.jobs)
        self.left = {each.folder for each in self.jobs}


class Tuning:
    """Works on a study until it is finished or the command is to stop; owned by its main thread."""

    def __init__(
        self, trials: Trials, space: Space, runs: Runs, panel: StudyPanel, at_once: int
    ) -> None:
        self._trials = trials
        self._space = space
        self._runs = runs
        self._panel = panel
        self._at_once = at_once
        self._crews: list[Crew] = []
        self._asked_s = -ASK_S
        self._crowned = self._finished = False

    def run(self) -> None:
        """Raises SystemExit once an interrupted study has saved, and RunFailed on a full disk."""
        terms = Terms(
            root=str(self._trials.root),
            at_once=self._at_once,
            cores=None,
            scheduled=False,
            pid=os.getpid(),
            host=platform.node(),
        )
        with Processes(LocalProcess, terms, self._runs.command) as processes, self._panel:
            self._work(processes)
        for crew in self._crews:
            if crew.training is not None:
                self._trials.store.update(crew.training.trial, owner="", rung=crew.training.rung)
        reason = processes.stop.reason
        if isinstance(reason, Interrupted):
            raise SystemExit(reason.exit_status)

    def _work(self, processes: Processes) -> None:
        """Until nothing is left to do, or nothing runs any more in a command that is to stop."""
        rows = self._trials.rows()
        while processes.running or not (processes.stop.requested or self._finished):
            free = self._at_once - len(processes.running)
            while free > 0 and not processes.stop.requested and (job := self._next_job()):
                processes.start(job, JobView(job.number or 0, job.folder.name, job.folder))
                free -= 1
            ended = processes.look()
            for view, reason in ended:
                self._ended(view.folder, reason, stopping=processes.stop.requested)
            if ended:
                rows = self._trials.rows()
            self._trials.store.beat()
            self._panel.show(processes.running, rows)

    def _next_job(self) -> Job | None:
        """A run of a trial that this command trains, else the first one of another."""
        while True:
            for crew in self._crews:
                if crew.waiting:
                    return crew.waiting.pop(0)
            if time.monotonic() < self._asked_s + ASK_S:
                return None
            taken = self._trials.take(self._space)
            if isinstance(taken, Training):
                self._train(taken)
            elif taken == What.finish and not self._crowned:
                self._crown()
            else:
                self._asked_s = time.monotonic()
                self._finished = taken == What.finish and not self._crews

    def _train(self, training: Training) -> None:
        """The runs of a trial to its next rung, unless its settings are refused."""
        trials, number = self._trials, training.trial.number

        def failed(reason: str) -> None:
            trials.failed(training, reason)

        def done(folders: Sequence[Path]) -> None:
            trials.reached(training, folders)

        folder, seeds = trials.root / f"trial-{number:04}", range(trials.study.seeds)
        try:
            jobs = self._runs.jobs(number, training.settings, seeds, folder)
        except ConfigError as error:
            failed(reason_of(error))
            return
        values = f": {' '.join(training.settings)}" if training.how == "starts" else ""
        self._panel.event(f"trial {number} {training.how} to {trials.steps(training.rung)}{values}")
        steps = trials.study.budgets[training.rung]
        limited = [self._runs.budget.limited(each, steps) for each in jobs]
        self._crews.append(Crew(limited, done, failed, training))

    def _crown(self) -> None:
        """The runs of the winner on fresh seeds, unless another command has them."""
        self._crowned = True
        best, study = self._trials.winner(), self._trials.study
        if best is None or not study.fresh_seeds:
            return
        folder = self._trials.root / "best" / f"trial-{best.number:04}"
        seeds = range(FRESH, FRESH + study.fresh_seeds)
        jobs = self._runs.jobs(best.number, best.settings, seeds, folder)
        limited = [self._runs.budget.limited(each, study.budgets[-1]) for each in jobs]
        self._panel.event(f"trial {best.number} is the best; it is trained on fresh seeds")
        self._crews.append(Crew(limited, lambda _: None, self._panel.event))

    def _ended(self, folder: Path, reason: str, *, stopping: bool) -> None:
        """A process has ended, and its run with it; else that resumes from its checkpoint."""
        crew = next((each for each in self._crews if folder in each.left), None)
        if crew is None:  # of a trial that has failed
            return
        facts = read_run(folder)
        status, why = facts.get("status"), facts.get("exit_reason") or reason
        try:
            if status == FINISHED:
                crew.left.discard(folder)
                if not crew.left:
                    crew.done([each.folder for each in crew.jobs])
            elif status == "failed" or crew.deaths[folder] >= MOST_DEATHS:
                self._refuse_full_disk(why)
                raise ConfigError(f"{folder.name}: {why}")
            elif not stopping:
                crew.deaths[folder] += 1
                crew.waiting.append(next(each for each in crew.jobs if each.folder == folder))
        except ConfigError as error:
            crew.failed(str(error))
            crew.left.clear()  # what still runs of it counts for nothing
        if not crew.left:
            self._crews.remove(crew)
            self._asked_s = -ASK_S  # there is something to decide

    def _refuse_full_disk(self, reason: object) -> None:
        free = shutil.disk_usage(self._trials.root).free
        if free < LEAST_FREE_NBYTES:
            raise RunFailed(f"{reason}; the disk has {size(free)} left, and the study stops")
