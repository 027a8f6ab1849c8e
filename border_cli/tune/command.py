"""A study while a command works on it: whenever a process is free, a run of the most useful trial.

The runs of a trial come to a rung together; no trial waits for another one.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from border_cli.config.compose import Composer
from border_cli.config.job import Job
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError, Interrupted, RunFailed, reason_of
from border_cli.launch.jobs import FINISHED, check_jobs
from border_cli.launch.startup import collect_from_here
from border_cli.run.removal import remove_run
from border_cli.run.status import read_run
from border_cli.settings.run import RunConfig, TrainerConfig
from border_cli.sweep.panel import JobView
from border_cli.sweep.plan import OUR_LAUNCHER
from border_cli.sweep.processes import LocalProcess, Processes
from border_cli.sweep.request import Terms
from border_cli.system.files import write_text
from border_cli.system.machine import usable_cores
from border_cli.tune.best import best_yaml
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import What, rung_budgets
from border_cli.tune.runs import Runs, Training, length_of
from border_cli.tune.space import Space, check_space, read_space
from border_cli.tune.store import opened
from border_cli.tune.study import Trials, begun
from border_cli.tune.table import StudyPanel, print_outcome
from border_cli.tune.trials import TRIALS_JSON, Study, ranked
from border_cli.words import size

STUDY_DB = "study.db"
ASK_S = 2.0  # between two looks at what others do while there is nothing to do
MOST_DEATHS = 3  # of the processes of one run; with another one its trial fails
LEAST_FREE_NBYTES = 2**26  # of the disk; what fails with less is not the trial's fault
FAILURES = ("save_failures", "recorder_failures")  # of run.json


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
    terms = sweep_terms(composer, overrides, OUR_LAUNCHER)
    asked = described(config, space, base, overrides)  # refuses sooner than all of the space
    check_space(composer, space, overrides, terms)
    there = (root / TRIALS_JSON).exists()
    study = begun(root, asked)
    runs = Runs(composer=composer, terms=terms, overrides=overrides, study=study, root=root)
    url = config.storage or f"sqlite:///{root / STUDY_DB}"
    with opened(url, f"{study.name} {study.id}", root, begun=there) as store:
        panel = StudyPanel()
        trials = Trials(store, config, runs, panel.event)
        collect_from_here()
        Tuning(trials, space, runs, panel, config.jobs or usable_cores()).run()
        rows, fresh = trials.rows(), trials.fresh
    if (fresh or not study.fresh_seeds) and rows:
        best = ranked(rows)[0]
        winner = composer.job(shlex.split(best.command)[1:]).config
        write_text(root / "best.yaml", best_yaml(composer, study, best, winner, fresh))
    print_outcome(root, study, rows, fresh)


def described(config: TuneConfig, space: Space, base: Job, overrides: Sequence[str]) -> Study:
    """The study that a command asks for; `base`: a run of it before any value is chosen."""
    unit, full, interval = length_of(base.config)
    rungs, reduction = config.rungs, config.reduction
    budgets = rung_budgets(full, rungs=rungs, reduction=reduction, interval=interval)
    _refuse_long_warmup(base.config.trainer, space, budgets[0])
    if rungs > 1 and budgets[0] >= config.max_cost * full:
        allowed = f"must be above {budgets[0] / full:.2g}, which all trials at the first rung cost"
        config.refuse("max_cost", config.max_cost, allowed)
    return Study(
        id=uuid4().hex[:8],
        name=base.folder.name,
        command=list(base.command),
        agent=base.config.agent.option or "",
        env=base.config.env.option or "",
        overrides=sorted(overrides),
        space=space.content,
        unit=unit,
        interval=interval,
        budgets=list(budgets),
        seeds=config.seeds,
        score=config.score.value,
        last_evals=config.last_evals,
        trials=config.trials,
        fresh_seeds=config.fresh_seeds,
    )


def _refuse_long_warmup(trainer: TrainerConfig, space: Space, first: int) -> None:
    name, value = "warmup_period", trainer.warmup_period
    if value >= first and not trainer.offline and f"trainer.{name}" not in space.hyperparameters:
        allowed = f"must be below the {first:,} env steps of the first rung (or choose fewer rungs)"
        trainer.refuse(name, value, allowed)


def searched(
    composer: Composer, base: RunConfig, overrides: Sequence[str], name: str | None
) -> Space:
    """The space of a study: that of its agent unless another is named; what is typed is fixed."""
    with composer.opened() as files:
        return read_space(files, name or base.agent.option or "").without(overrides)


@dataclass(slots=True, kw_only=True)
class Crew:
    """Runs that come to their rung together."""

    training: Training
    jobs: dict[Path, Job]  # by folder; those that have not come there
    waiting: list[Path]
    deaths: Counter[Path] = field(default_factory=Counter)  # of their processes


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
        self._finished = False

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
        with Processes(LocalProcess, terms, self._trials.study.command) as processes, self._panel:
            self._rows = self._trials.rows()
            while processes.running or not (processes.stop.requested or self._finished):
                self._start(processes)
                ended = processes.look()
                for view, reason in ended:
                    self._ended(view.folder, reason, stopping=processes.stop.requested)
                if ended:
                    self._rows = self._trials.rows()
                self._panel.show(processes.running, self._trials.study, self._rows)
        if isinstance(processes.stop.reason, Interrupted):
            raise SystemExit(processes.stop.reason.exit_status)

    def _start(self, processes: Processes) -> None:
        """Starts runs while there is room: of trials that this command trains, then of others."""
        while len(processes.running) < self._at_once and not processes.stop.requested:
            crew = next((each for each in self._crews if each.waiting), None)
            if crew is not None:
                job = crew.jobs[crew.waiting.pop(0)]
                view = JobView(job.number or 0, job.folder.name, job.folder)
                processes.start(job, view)
            elif not self._take():
                return

    def _take(self) -> bool:
        """Takes on a trial; False where there is none now."""
        if time.monotonic() < self._asked_s + ASK_S:
            return False
        taken = self._trials.take(self._space)
        self._rows = self._trials.rows()  # it may have pruned some, too
        if not isinstance(taken, Training):
            self._asked_s = time.monotonic()
            self._finished = taken == What.finish and not self._crews
            return False
        try:
            made = self._runs.jobs(taken)
        except ConfigError as error:
            self._trials.failed(taken, reason_of(error))
            return True
        left = [each for each in made if not self._runs.is_done(each.folder, taken.rung)]
        jobs = {each.folder: each for each in left}
        if jobs:
            self._crews.append(Crew(training=taken, jobs=jobs, waiting=list(jobs)))
        else:  # a command was ended before it could say so
            self._trials.reached(taken)
        return True

    def _ended(self, folder: Path, reason: str, *, stopping: bool) -> None:
        """A process has ended, and its run with it; else that resumes from its checkpoint.

        `reason`: what ended the process, if the run has not said so itself.
        """
        crew = next((each for each in self._crews if folder in each.jobs), None)
        if crew is None:  # of a trial that has failed
            return
        facts = read_run(folder)
        why = facts.get("exit_reason") or reason
        if facts.get("status") == FINISHED and any(map(facts.get, FAILURES)):
            why = f"{folder.name} could not be saved"
            remove_run(folder)  # evaluations or a checkpoint are missing: it starts over
        crew.deaths[folder] += 1
        if self._runs.is_done(folder, crew.training.rung):
            del crew.jobs[folder]
        elif not stopping:
            self._refuse_full_disk(why)
            crew.waiting.append(folder)
            failed = facts.get("status") == "failed" and why != reason  # else it never began
            if failed or crew.deaths[folder] > MOST_DEATHS:
                self._crews.remove(crew)  # what still runs of it counts for nothing
                self._trials.failed(crew.training, f"{folder.name}: {why}")
        if not crew.jobs:
            self._crews.remove(crew)
            self._trials.reached(crew.training)
        self._asked_s = -ASK_S  # there may be something to decide

    def _refuse_full_disk(self, reason: object) -> None:
        free = shutil.disk_usage(self._trials.root).free
        if free < LEAST_FREE_NBYTES:
            raise RunFailed(f"{reason}; the disk has {size(free)} left, and the study stops")
