"""The `border-tune` command: whenever a process is free, it trains a run of the most useful trial.

A trial reaches a rung when all of its runs have; it does not wait for other trials.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from border_cli.checks.check import check_job, find_earlier_run
from border_cli.config.compose import Composer
from border_cli.config.describe import format_setting
from border_cli.config.job import Job
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError, Interrupted, RunFailed, reason_of
from border_cli.messages import say
from border_cli.process.startup import resume_garbage_collection
from border_cli.run.lock import RunInUse
from border_cli.run.status import read_run
from border_cli.sweep.panel import JobView
from border_cli.sweep.plan import OUR_LAUNCHER
from border_cli.sweep.processes import LocalProcess, Processes
from border_cli.sweep.request import LaunchTerms
from border_cli.system.files import write_text
from border_cli.system.machine import usable_cores
from border_cli.tune.best import best_yaml
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Action, rung_budgets
from border_cli.tune.runs import Training, TrialRuns, length_of, without_tuned_ends
from border_cli.tune.space import Space, check_space, read_space
from border_cli.tune.store import open_store
from border_cli.tune.study import Trials, open_study
from border_cli.tune.table import StudyPanel, print_best, score_of
from border_cli.tune.trials import TRIALS_JSON, Study, rank_trials
from border_cli.words import shell_command, shortest, size

STUDY_DB = "study.db"
ASK_S = 2.0  # polling interval for changes by other commands while there is nothing to train
MOST_DEATHS = 3  # how often the process of a run may die; one more death fails the trial
LEAST_FREE_NBYTES = 2**26  # a failure with less free disk space is not attributed to the trial


def tune(
    composer: Composer, overrides: Sequence[str], config: TuneConfig, command: Sequence[str]
) -> None:
    """Runs or resumes the study that a command requests.

    Raises ConfigError if the study is refused, SystemExit if it was interrupted, and RunFailed if
    it cannot continue.
    """
    root = Path(config.study)
    job = composer.job(overrides)
    if ends_to_drop := without_tuned_ends(composer, overrides, job.config.trainer):
        for override in ends_to_drop:
            say(f"{override}: the tuned value is ignored; all runs of a study have the same length")
        overrides = [*overrides, *ends_to_drop]
        job = composer.job(overrides)
    base = replace(job, folder=root, command=tuple(command))
    with composer.open_files() as files:
        name = config.search or base.config.agent.option or ""
        space = read_space(files, name).without(overrides)
    check_job(base, composer)
    terms = sweep_terms(composer, overrides, OUR_LAUNCHER)
    requested = describe_study(config, space, base, overrides)  # checked before the space: faster
    check_space(composer, space, overrides, terms)
    if config.dry_run:
        entries = [
            f"  {param}: {format_setting(space.content[param])}" for param in space.hyperparameters
        ]
        budgets = ", ".join(map(requested.steps, range(len(requested.budgets))))
        say("\n".join([f"# {space.file}, budgets of {budgets}", "hyperparameters:", *entries]))
        return
    exists = (root / TRIALS_JSON).exists()
    study = open_study(root, requested)
    runs = TrialRuns(composer=composer, terms=terms, overrides=overrides, study=study, root=root)
    url = config.storage or f"sqlite:///{root / STUDY_DB}"
    with open_store(url, f"{study.name} {study.id}", root, begun=exists) as store:
        panel = StudyPanel()
        trials = Trials(study, space, store, config, runs, panel.event)
        resume_garbage_collection()
        Tuning(trials, panel, config.jobs or usable_cores()).run()
        rows, fresh = trials.own_rows, trials.fresh
    shown_root = shlex.quote(str(shortest(root)))
    lines = [("next", f"{shell_command('border-plot')} {shown_root}")]
    if (fresh or not study.fresh_seeds) and (best := next(iter(rank_trials(rows)), None)):
        winner = composer.job(runs.overrides_for(best.settings)).config
        write_text(root / "best.yaml", best_yaml(composer, study, best, winner, fresh))
        lines = [("winner", f"{score_of(best, fresh)}: {shown_root}/best.yaml"), *lines]
    print_best(study, rows, *lines)


def describe_study(config: TuneConfig, space: Space, base: Job, overrides: Sequence[str]) -> Study:
    """Returns the study that a command requests. `base` is a job without the values of a trial."""
    unit, full, interval = length_of(base.config)
    rungs, reduction = config.rungs, config.reduction
    budgets = rung_budgets(full, rungs=rungs, reduction=reduction, interval=interval)
    if rungs > 1 and budgets[0] >= config.max_cost * full:
        config.refuse(
            "max_cost",
            config.max_cost,
            f"must be above {budgets[0] / full:.2g}, the cost of all trials up to the first rung",
        )
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


@dataclass(slots=True)
class Tuning:
    """Trains trials until the study is finished or stopped; owned by the command's main thread."""

    trials: Trials
    panel: StudyPanel
    at_once: int
    trainings: list[Training] = field(default_factory=list)
    deaths: Counter[Path] = field(default_factory=Counter)  # run directory -> number of deaths
    asked_s: float = -ASK_S  # last time at which there was nothing to train
    finished: bool = False

    def run(self) -> None:
        """Trains until the study is finished. Raises SystemExit once an interrupted study is saved,
        and RunFailed if the disk is full or the first trials fail."""
        study = self.trials.study
        terms = LaunchTerms(root=str(self.trials.runs.root), at_once=self.at_once)
        with Processes(LocalProcess, terms, study.command) as processes, self.panel:
            self.trials.look()
            while processes.running or not (processes.stop.requested or self.finished):
                self._start(processes)
                for view, reason in processes.poll():
                    self._handle_process_end(view.folder, reason, stopping=processes.stop.requested)
                    self.trials.look()
                    self.asked_s = -ASK_S  # there may be a new decision to make
                self.panel.show(processes.running, study, self.trials.rows)
        if isinstance(processes.stop.reason, Interrupted):
            storage = " storage=…" if self.trials.config.storage else ""  # may contain a password
            say(f"resume with: {shlex.join(study.command)}{storage}")
            raise SystemExit(processes.stop.reason.exit_status)

    def _start(self, processes: Processes) -> None:
        """Starts runs while processes are free: of trials in training first, then of new ones."""
        while len(processes.running) < self.at_once and not processes.stop.requested:
            running = {view.folder for view in processes.running}
            jobs = (job for training in self.trainings for job in training.jobs.values())
            if job := next((queued for queued in jobs if queued.folder not in running), None):
                processes.start(job, JobView(job.number or 0, job.folder.name, job.folder))
            elif time.monotonic() < self.asked_s + ASK_S:
                return
            else:
                self._take_trial()
                self.trials.look()

    def _take_trial(self) -> None:
        """Begins training a trial if one is available."""
        training, runs = self.trials.take(), self.trials.runs
        if not isinstance(training, Training):
            self.asked_s = time.monotonic()
            self.finished = training == Action.finish and not self.trainings
            return
        try:
            jobs = runs.jobs(training)
        except ConfigError as error:
            self.trials.record_failure(training, reason_of(error))
            return
        for job in jobs.values():  # raises if files have changed its settings since it began
            with suppress(RunInUse):  # by a process of a command that has just been killed
                find_earlier_run(job)
        training.jobs = {path: jobs[path] for path in jobs if not runs.is_done(path, training.rung)}
        if training.jobs:
            self.trainings.append(training)
        else:  # a command was killed before it could record that the runs were done
            self.trials.finish_training(training)

    def _handle_process_end(self, folder: Path, reason: str, *, stopping: bool) -> None:
        """Handles the end of a process; a run that is not done resumes from its checkpoint.
        `reason` says why the process ended, in case the run has not recorded a reason."""
        training = next((current for current in self.trainings if folder in current.jobs), None)
        if training is None:  # the trial of this run has failed
            return
        facts = read_run(folder)
        why = facts.get("exit_reason") or reason
        if self.trials.runs.is_done(folder, training.rung):
            del training.jobs[folder]
            if not training.jobs:
                self.trainings.remove(training)
                self.trials.finish_training(training)
        elif not stopping:
            if (free := shutil.disk_usage(self.trials.runs.root).free) < LEAST_FREE_NBYTES:
                raise RunFailed(
                    f"{why}; only {size(free)} of disk space is left, so the study stops"
                )
            self.deaths[folder] += 1
            failed = facts.get("status") == "failed" and why != reason  # equal if it never began
            if failed or self.deaths[folder] > MOST_DEATHS:
                self.trainings.remove(training)  # results of its other runs are ignored
                self.trials.record_failure(training, f"{folder.name}: {why}")
