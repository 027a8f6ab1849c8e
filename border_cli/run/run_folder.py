"""A run directory as its files say: new, foreign, in use, resumable or finished."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from border_cli.errors import CheckpointError, ConfigError
from border_cli.run.finding import resumable, run_around
from border_cli.run.layout import refuse_foreign
from border_cli.run.lock import RUN_LOCK, RunInUse, running
from border_cli.run.status import DONE, EPISODE_LIMIT, LOST, NOT_STARTED, RUN_JSON, read_run
from border_cli.settings.run import AUTO, Objective, RunConfig, TrainerConfig
from border_cli.system.files import SETTINGS, SWEEP_JSON
from border_cli.system.machine import unwritable
from border_cli.words import shortest

MARKS = (RUN_JSON, ".hydra")  # one of them is there once an attempt has begun
BY_CALLBACK = "callback "  # begins the exit reason of a run that a callback has ended
LIMITS = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score", "patience")


class Start(Enum):
    """How the next attempt in a run directory starts."""

    FRESH = "no attempt is there"
    OVER = "an attempt without a checkpoint is there, and is removed"
    CONTINUED = "from a checkpoint"
    FINISHED = "not at all: the run has reached a limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """What the run in a directory means for an attempt with certain settings."""

    start: Start
    changed: tuple[str, ...] = ()  # `trainer.max_opt_steps: 10000 -> 20000`
    score: float = -math.inf  # of a finished run
    message: str = ""  # of a finished run: why it ended, and how to continue it

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.start is Start.FINISHED

    @property
    def resumes(self) -> bool:
        """Whether an attempt begins with a checkpoint, be it of a finished run."""
        return self.finished or self.start is Start.CONTINUED


class Differences(NamedTuple):
    """How the settings of an attempt differ from the saved ones."""

    saved: TrainerConfig
    changed: tuple[str, ...] = ()
    other_callbacks: bool = False


# Compares the settings that a run directory has saved with those of an attempt; raises ConfigError
# where the run cannot be resumed with these.
Compare = Callable[[Path], Differences]


class RunFolder:
    """A run directory. Each file is read once; after `RunLock` is taken, make another one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """`run.json` with the true status, see `read_run`."""
        return read_run(self.path)

    @cached_property
    def checkpoints(self) -> list[Path]:
        """See `resumable`."""
        return resumable(self.path)

    @property
    def has_run(self) -> bool:
        """Whether an attempt has begun in the directory."""
        return any((self.path / mark).exists() for mark in MARKS)

    @property
    def has_settings(self) -> bool:
        return (self.path / SETTINGS).is_file()

    @property
    def status(self) -> str:
        """That of `run.json`; lost where a run has begun and its `run.json` is missing or damaged,
        not started where none has begun."""
        if "status" in self.facts:
            return str(self.facts["status"])
        with running(self.path) as runs:
            if runs:
                return "running"
        begun = any((self.path / each).exists() for each in (RUN_LOCK, RUN_JSON, "checkpoints"))
        return LOST if begun else NOT_STARTED

    @property
    def episode_limit(self) -> int | None:
        """The limit of evaluated episodes that the run decided; None if it needed none."""
        steps = self.facts.get(EPISODE_LIMIT)
        return steps if type(steps) is int and steps > 0 else None

    @property
    def is_done(self) -> bool:
        """Whether the run there has reached a limit, which may have grown since."""
        return self.status == DONE

    def refuse_unwritable(self) -> None:
        """Raises where the directory can be neither made nor written to."""
        folder = shortest(self.path)
        reason = unwritable(folder)
        if reason is not None:
            what = "written to" if os.path.isdir(folder) else "made"  # noqa: PTH112 - never raises
            raise ConfigError(f"run_dir={folder} cannot be {what}: {reason}")

    def refuse_in_use(self) -> None:
        """Raises where something else has the name of a file of ours, or a process runs there.

        Where the latter is not known, the lock decides later.
        """
        refuse_foreign(self.path)
        with running(self.path) as runs:
            if runs:
                raise RunInUse(self.path)

    def refuse_no_run(self) -> None:
        """Raises where the directory, which shall be resumed, has no single run."""
        path = self.path
        if not path.is_dir():
            raise ConfigError(f"resume: no such directory: {path}{run_around(path)}")
        if (path / SWEEP_JSON).exists():
            jobs = sorted(each.parent.parent for each in path.glob(f"*/{SETTINGS}"))
            one = f", or resume one of its jobs, such as {jobs[0]}" if jobs else ""
            raise ConfigError(
                f"resume: {path} is the directory of a sweep: repeat its command with "
                f"run_dir={path} resume=auto{one}"
            )
        if not self.has_settings:
            raise ConfigError(
                f"resume: {path} is not a run directory: there is no {SETTINGS}{run_around(path)}"
            )

    def earlier(self, config: RunConfig, compare: Compare) -> EarlierRun:
        """What is there for an attempt with these settings; nothing is written.

        Raises ConfigError where the attempt would start in the place of another run, or where that
        one's settings may not change so.
        """
        if config.resume is None:
            if self.has_run:
                raise ConfigError(
                    f"{shortest(self.path)} already contains a run: choose another run_dir, or add "
                    "resume=auto"
                )
            return EarlierRun(start=Start.FRESH)
        if config.resume != AUTO:
            self.refuse_no_run()
        if not self.has_settings:
            return EarlierRun(start=Start.FRESH)
        resumes = self.is_done or bool(self.checkpoints)  # a finished run is never removed
        if config.resume == AUTO and not resumes:
            return EarlierRun(start=Start.OVER)  # nothing is lost by other settings
        differences = compare(self.path)
        if self.is_done and not self._grew(config, differences):
            return self._finished(config, differences)
        if self.is_done and not self.checkpoints:
            raise CheckpointError(f"{self.path} is finished, but has no checkpoint to resume from")
        start = Start.CONTINUED if resumes else Start.OVER
        return EarlierRun(start=start, changed=differences.changed)

    def _grew(self, config: RunConfig, differences: Differences) -> bool:
        """Whether what ended the run would not end it now: the limit has grown, or there are other
        callbacks."""
        reason = str(self.facts.get("exit_reason"))
        limit = reason.partition(" ")[0]
        if reason.startswith(BY_CALLBACK) and differences.other_callbacks:
            return True
        ended_by = [limit] if limit in LIMITS else LIMITS
        return any(_grew(each, differences.saved, config.trainer) for each in ended_by)

    def _finished(self, config: RunConfig, differences: Differences) -> EarlierRun:
        facts = self.facts
        score = facts.get("best_score" if config.objective == Objective.best else "final_score")
        with_score = f" with score {score:.10g}" if score is not None else ""
        what, more = str(facts.get("exit_reason")), "increase a limit to continue"
        limit = what.partition(" ")[0]
        if limit in LIMITS:
            what = f"{limit}={getattr(differences.saved, limit)} reached"
            more = f"increase trainer.{limit} to continue"
            if limit == "stop_at_score":  # there may be no better score
                more = "set trainer.max_opt_steps in its place to continue"
        elif what.startswith(BY_CALLBACK):
            more = "change the callback or increase a limit to continue"
        return EarlierRun(
            start=Start.FINISHED,
            changed=differences.changed,
            score=float(score) if score is not None else -math.inf,
            message=f"{shortest(self.path)} is finished{with_score}: {what}; {more}",
        )


def _grew(limit: str, saved: TrainerConfig, now: TrainerConfig) -> bool:
    before, after = getattr(saved, limit), getattr(now, limit)
    if before is None:  # it has ended nothing
        return False
    patient = limit == "stop_at_score" and now.stop_evals > saved.stop_evals
    return after is None or after > before or patient
