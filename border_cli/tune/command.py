"""A study while a command works on it: whenever a process is free, a run of the most useful trial.

The runs of a trial come to a rung together; no trial waits for another one.
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections import Counter, deque
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
from border_cli.sweep.panel import JobView
from border_cli.sweep.plan import OUR_LAUNCHER
from border_cli.sweep.processes import LocalProcess, Processes
from border_cli.sweep.request import Terms
from border_cli.system.machine import usable_cores
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import What
from border_cli.tune.space import Space, found_space
from border_cli.tune.store import opened
from border_cli.tune.study import Training, Trials, begun, described, winner_folder
from border_cli.tune.table import RunView, StudyPanel
from border_cli.tune.trial_runs import TrialRuns, budget_of
from border_cli.words import size

STUDY_DB = "study.db"
ASK_S = 2.0  # between two looks into the storage while there is nothing to do
MOST_DEATHS = 3  # of the processes of one run, after which its trial fails
LEAST_FREE_NBYTES = 2**26  # of the disk; what fails with less is not the trial's fault


def tune(
    composer: Composer, overrides: Sequence[str], config: TuneConfig, command: Sequence[str]
) -> None:
    """Works on the study that a command asks for, and shows what came out.

    Raises ConfigError where it is refused, SystemExit where it was interrupted.
    """
    root = Path(config.study)
    space = found_space(composer, overrides, config.search)
    base = replace(composer.job(overrides), command=tuple(command))
    check_jobs(composer, [replace(base, folder=root)])
    budget = budget_of(base.config)
    study, was_begun = begun(root, described(config, space, base, budget, overrides))
    runs = TrialRuns(
        composer=composer,
        terms=sweep_terms(composer, overrides, OUR_LAUNCHER),
        overrides=overrides,
        budget=budget,
        root=root,
        command=command,
    )
    url = config.storage or f"sqlite:///{root / STUDY_DB}"
    with opened(url, study.name, study.id, begun=was_begun) as store:
        table = StudyPanel(study)
        trials = Trials(study, store, config, runs, say=table.event)
        at_once = config.jobs or usable_cores()
        collect_from_here()
        Tuning(trials, space, runs, table, at_once=at_once).run()


FRESH = 1000  # the first of the fresh seeds


@dataclass(slots=True)
class Crew:
    """Runs that belong together: those of one trial on its way to a rung, or of the winner."""

    jobs: Sequence[Job]
    steps: int  # of each run
    done: Callable[[Sequence[Path]], str]  # given the folders; what there is to say
    failed: Callable[[str], None]  # given a reason
    waiting: deque[Job] = field(default_factory=deque)
    left: set[Path] = field(default_factory=set)  # folders of runs that have not ended
    deaths: Counter[Path] = field(default_factory=Counter)
    trial: int | None = None  # that this command holds

    def __post_init__(self) -> None:
        self.waiting.extend(self.jobs)
        self.left.update(each.folder for each in self.jobs)


class Tuning:
    """Works on a study until it is finished or the command is to stop; owned by its main thread."""

    def __init__(
        self, trials: Trials, space: Space, runs: TrialRuns, table: StudyPanel, *, at_once: int
    ) -> None:
        self._trials = trials
        self._space = space
        self._runs = runs
        self._table = table
        self._at_once = at_once
        self._crews: list[Crew] = []
        self._asked_s = -ASK_S
        self._asked: What = What.start
        self._crowned = False

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
        try:
            with Processes(LocalProcess, terms, self._runs.command) as processes, self._table:
                self._work(processes)
        finally:
            for crew in self._crews:
                if crew.trial is not None:
                    self._trials.store.let_go(crew.trial)
            self._trials.write()
        reason = processes.stop.reason
        if isinstance(reason, Interrupted):
            raise SystemExit(reason.exit_status)

    def _work(self, processes: Processes) -> None:
        """Until nothing is left to do, or nothing runs any more in a command that is to stop."""
        rows = self._trials.write()
        while processes.running or not (processes.stop.requested or self._finished()):
            while not processes.stop.requested and len(processes.running) < self._at_once:
                job = self._next_job()
                if job is None:
                    break
                processes.start(job, JobView(job.number or 0, job.folder.name, job.folder))
            ended = processes.look()
            for view, reason in ended:
                self._ended(view.folder, reason, stopping=processes.stop.requested)
            self._trials.store.beat()
            if ended:
                rows = self._trials.write()
            self._table.show([self._view(each) for each in processes.running], rows)

    def _view(self, run: JobView) -> RunView:
        crew = next((each for each in self._crews if run.folder in each.left), None)
        seed = int(run.label.partition("-")[2])
        return RunView(run.number, seed, crew.steps if crew else 0, run.folder)

    def _finished(self) -> bool:
        return self._asked == What.finish and not self._crews and self._crowned

    def _next_job(self) -> Job | None:
        """A run of a trial that this command trains, else the first one of another."""
        while True:
            for crew in self._crews:
                if crew.waiting:
                    return crew.waiting.popleft()
            idle = self._asked in (What.wait, What.finish)
            if idle and time.monotonic() < self._asked_s + ASK_S:
                return None
            self._asked_s = time.monotonic()
            taken = self._trials.take(self._space)
            self._asked = taken if isinstance(taken, What) else What.start
            if isinstance(taken, Training):
                self._train(taken)
            elif taken == What.wait or self._crowned:
                return None
            else:
                self._crown()

    def _train(self, training: Training) -> None:
        """The runs of a trial to its next rung, unless its settings are refused."""
        number, study, trials = training.number, self._trials.study, self._trials
        folder = trials.folder(number)

        def failed(reason: str) -> None:
            trials.store.fail(number, reason)
            self._table.event(f"trial {number} failed: {reason}")

        try:
            jobs = self._runs.jobs(number, training.settings, range(study.seeds), folder)
        except ConfigError as error:
            failed(reason_of(error))
            return
        name = f"trial {number}"
        begins = "resumes" if training.resumed else "starts" if not training.rung else "goes on"
        values = "" if training.rung else f": {' '.join(training.settings)}"
        self._table.event(f"{name} {begins} to {trials.steps(training.rung)}{values}")
        self._add(
            jobs,
            study.budgets[training.rung],
            lambda folders: f"{name}: {trials.reached(training, folders)}",
            failed,
            trial=number,
        )

    def _crown(self) -> None:
        """The runs of the winner on fresh seeds, unless another command has them."""
        self._crowned = True
        study = self._trials.study
        best = self._trials.winner() if study.fresh_seeds else None
        if best is None:
            return
        seeds = range(FRESH, FRESH + study.fresh_seeds)
        folder = winner_folder(self._trials.root, best.number)
        jobs = self._runs.jobs(best.number, best.settings, seeds, folder)
        self._table.event(f"trial {best.number} is the best: trained on {len(seeds)} fresh seeds")
        self._add(jobs, study.budgets[-1], lambda _: "the fresh seeds are done", self._table.event)

    def _add(
        self,
        jobs: Sequence[Job],
        steps: int,
        done: Callable[[Sequence[Path]], str],
        failed: Callable[[str], None],
        trial: int | None = None,
    ) -> None:
        limited = self._runs.budget.limited
        jobs = [replace(each, config=limited(each.config, steps)) for each in jobs]
        self._crews.append(Crew(jobs, steps, done, failed, trial=trial))

    def _ended(self, folder: Path, reason: str, *, stopping: bool) -> None:
        """A process has ended: its run with it, or it begins once more from its checkpoint."""
        crew = next((each for each in self._crews if folder in each.left), None)
        facts = read_run(folder)
        status, why = facts.get("status"), facts.get("exit_reason") or reason
        if crew is None:  # of a trial that has failed
            return
        if status == FINISHED:
            crew.left.discard(folder)
            if not crew.left:
                self._complete(crew)
        elif status == "failed" or (not stopping and crew.deaths[folder] >= MOST_DEATHS):
            self._refuse_full_disk(why)
            self._give_up(crew, f"{folder.name}: {why}")
        elif not stopping:
            crew.deaths[folder] += 1
            crew.waiting.append(next(each for each in crew.jobs if each.folder == folder))
            self._table.event(f"{folder.parent.name}/{folder.name} goes on: {why}")

    def _complete(self, crew: Crew) -> None:
        try:
            said = crew.done([each.folder for each in crew.jobs])
        except ConfigError as error:
            self._give_up(crew, str(error))
            return
        self._dissolve(crew)
        self._table.event(said)

    def _give_up(self, crew: Crew, reason: str) -> None:
        """What still runs of it comes to its end, and counts for nothing."""
        self._dissolve(crew)
        crew.failed(reason)

    def _dissolve(self, crew: Crew) -> None:
        self._crews.remove(crew)
        self._asked_s = -ASK_S  # there is something to decide

    def _refuse_full_disk(self, reason: object) -> None:
        free = shutil.disk_usage(self._trials.root).free
        if free < LEAST_FREE_NBYTES:
            raise RunFailed(f"{reason}; the disk has {size(free)} left: the study stops here")
