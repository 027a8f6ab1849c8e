"""A study while a command works on it: whenever a process is free, a run of the most useful trial.

The runs of a trial come to a rung together; no trial waits for another one.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from border_cli.checks.check import check_job
from border_cli.config.compose import Composer
from border_cli.config.describe import shown
from border_cli.config.job import Job
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError, Interrupted, RunFailed, reason_of
from border_cli.messages import complain, say
from border_cli.process.startup import collect_from_here
from border_cli.run.status import read_run
from border_cli.sweep.panel import JobView
from border_cli.sweep.plan import OUR_LAUNCHER
from border_cli.sweep.processes import LocalProcess, Processes
from border_cli.sweep.request import Terms
from border_cli.system.files import write_text
from border_cli.system.machine import usable_cores
from border_cli.tune.best import best_yaml
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import What, rung_budgets
from border_cli.tune.runs import Training, TrialRuns, length_of, without_tuned_ends
from border_cli.tune.space import Space, check_space, read_space
from border_cli.tune.store import opened
from border_cli.tune.study import Trials, begun
from border_cli.tune.table import StudyPanel, print_best, score_of
from border_cli.tune.trials import TRIALS_JSON, Study, ranked
from border_cli.words import shell_command, shortest, size

STUDY_DB = "study.db"
ASK_S = 2.0  # between two looks at what others do while there is nothing to do
MOST_DEATHS = 3  # of the processes of one run; with another one its trial fails
LEAST_FREE_NBYTES = 2**26  # of the disk; what fails with less is not the trial's fault


def tune(
    composer: Composer, overrides: Sequence[str], config: TuneConfig, command: Sequence[str]
) -> None:
    """Works on the study that a command asks for.

    Raises ConfigError where it is refused, SystemExit where it was interrupted.
    """
    root = Path(config.study)
    job = composer.job(overrides)
    if dropped := without_tuned_ends(composer, overrides, job.config.trainer):
        for text in dropped:
            say(f"{text}: the tuned value does not count in a study, whose runs are equally long")
        overrides = [*overrides, *dropped]
        job = composer.job(overrides)
    base = replace(job, folder=root, command=tuple(command))
    with composer.opened() as files:
        name = config.search or base.config.agent.option or ""
        space = read_space(files, name).without(overrides)
    check_job(base, composer)
    terms = sweep_terms(composer, overrides, OUR_LAUNCHER)
    asked = described(config, space, base, overrides)  # refuses sooner than all of the space
    check_space(composer, space, overrides, terms)
    if config.dry_run:
        entries = [f"  {each}: {shown(space.content[each])}" for each in space.hyperparameters]
        budgets = ", ".join(map(asked.steps, range(len(asked.budgets))))
        say("\n".join([f"# {space.file}, budgets of {budgets}", "hyperparameters:", *entries]))
        return
    first, full = asked.budgets[0], asked.budgets[-1]
    if 0 < asked.trials * (config.max_cost * full - first) < 2 * (full - first):
        complain(
            "border-tune",
            f"max_cost={config.max_cost:g} pays for one trial to the end: the best of all after "
            f"{asked.steps(0)}",
        )
    there = (root / TRIALS_JSON).exists()
    study = begun(root, asked)
    runs = TrialRuns(composer=composer, terms=terms, overrides=overrides, study=study, root=root)
    url = config.storage or f"sqlite:///{root / STUDY_DB}"
    with opened(url, f"{study.name} {study.id}", root, begun=there) as store:
        panel = StudyPanel()
        trials = Trials(study, space, store, config, runs, panel.event)
        collect_from_here()
        Tuning(trials, panel, config.jobs or usable_cores()).run()
        rows, fresh = trials.rows, trials.fresh
    shown_root = shlex.quote(str(shortest(root)))
    lines = [("next", f"{shell_command('border-plot')} {shown_root}")]
    if (fresh or not study.fresh_seeds) and (best := next(iter(ranked(rows)), None)):
        winner = composer.job(runs.typed(best.settings)).config
        write_text(root / "best.yaml", best_yaml(composer, study, best, winner, fresh))
        lines = [("winner", f"{score_of(best, fresh)}: {shown_root}/best.yaml"), *lines]
    print_best(study, rows, *lines)


def described(config: TuneConfig, space: Space, base: Job, overrides: Sequence[str]) -> Study:
    """The study that a command asks for; `base`: a run of it before any value is chosen."""
    unit, full, interval = length_of(base.config)
    rungs, reduction = config.rungs, config.reduction
    budgets = rung_budgets(full, rungs=rungs, reduction=reduction, interval=interval)
    if rungs > 1 and budgets[0] >= config.max_cost * full:
        config.refuse(
            "max_cost",
            config.max_cost,
            f"must be above {budgets[0] / full:.2g}, which all trials at the first rung cost",
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
    """Works on a study until it is finished or the command is to stop; owned by its main thread."""

    trials: Trials
    panel: StudyPanel
    at_once: int
    trainings: list[Training] = field(default_factory=list)
    deaths: Counter[Path] = field(default_factory=Counter)  # of the processes of each run
    asked_s: float = -ASK_S
    finished: bool = False

    def run(self) -> None:
        """Raises SystemExit once an interrupted study has saved, and RunFailed on a full disk."""
        study = self.trials.study
        terms = Terms(root=str(self.trials.runs.root), at_once=self.at_once)
        with Processes(LocalProcess, terms, study.command) as processes, self.panel:
            self.trials.look()
            while processes.running or not (processes.stop.requested or self.finished):
                self._start(processes)
                for view, reason in processes.look():
                    self._ended(view.folder, reason, stopping=processes.stop.requested)
                    self.trials.look()
                    self.asked_s = -ASK_S  # there may be something to decide
                self.panel.show(processes.running, study, self.trials.rows)
        if isinstance(processes.stop.reason, Interrupted):
            storage = " storage=…" if self.trials.config.storage else ""  # it may have a password
            say(f"resume with: {shlex.join(study.command)}{storage}")
            raise SystemExit(processes.stop.reason.exit_status)

    def _start(self, processes: Processes) -> None:
        """Starts runs while there is room: of trials that this command trains, then of others."""
        while len(processes.running) < self.at_once and not processes.stop.requested:
            running = {view.folder for view in processes.running}
            jobs = (job for training in self.trainings for job in training.jobs.values())
            if job := next((each for each in jobs if each.folder not in running), None):
                processes.start(job, JobView(job.number or 0, job.folder.name, job.folder))
            elif time.monotonic() < self.asked_s + ASK_S:
                return
            else:
                self._take()
                self.trials.look()

    def _take(self) -> None:
        """Takes on a trial, if there is one now."""
        taken, runs = self.trials.take(), self.trials.runs
        if not isinstance(taken, Training):
            self.asked_s = time.monotonic()
            self.finished = taken == What.finish and not self.trainings
            return
        try:
            jobs = runs.jobs(taken)
        except ConfigError as error:
            self.trials.failed(taken, reason_of(error))
            return
        taken.jobs = {each: jobs[each] for each in jobs if not runs.is_done(each, taken.rung)}
        if taken.jobs:
            self.trainings.append(taken)
        else:  # a command was ended before it could say so
            self.trials.reached(taken)

    def _ended(self, folder: Path, reason: str, *, stopping: bool) -> None:
        """A process has ended, and its run with it; else that resumes from its checkpoint.

        `reason`: what ended the process, if the run has not said so itself.
        """
        training = next((each for each in self.trainings if folder in each.jobs), None)
        if training is None:  # of a trial that has failed
            return
        facts = read_run(folder)
        why = facts.get("exit_reason") or reason
        if self.trials.runs.is_done(folder, training.rung):
            del training.jobs[folder]
            if not training.jobs:
                self.trainings.remove(training)
                self.trials.reached(training)
        elif not stopping:
            if (free := shutil.disk_usage(self.trials.runs.root).free) < LEAST_FREE_NBYTES:
                raise RunFailed(f"{why}; the disk has {size(free)} left, and the study stops")
            self.deaths[folder] += 1
            failed = facts.get("status") == "failed" and why != reason  # else it never began
            if failed or self.deaths[folder] > MOST_DEATHS:
                self.trainings.remove(training)  # what still runs of it counts for nothing
                self.trials.failed(training, f"{folder.name}: {why}")
