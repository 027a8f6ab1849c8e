"""The state of a run directory: new, foreign, in use, resumable or finished."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from border_cli.errors import CheckpointError, ConfigError
from border_cli.run.finding import find_resumable, hint_at_run
from border_cli.run.layout import refuse_foreign
from border_cli.run.lock import RUN_LOCK, RunInUse, running
from border_cli.run.status import DONE, EPISODE_LIMIT, LOST, NOT_STARTED, RUN_JSON, read_run
from border_cli.settings.run import AUTO, Objective, RunConfig, TrainerConfig
from border_cli.system.files import SETTINGS
from border_cli.system.machine import unwritable
from border_cli.words import shortest

MARKS = (RUN_JSON, ".hydra")  # one of these exists once an attempt has started
BY_CALLBACK = "callback "  # start of the exit reason if a callback ended the run
LIMITS = ("max_opt_steps", "max_env_steps", "max_time_s", "stop_at_score", "patience")


class Start(Enum):
    """How the next attempt in a run directory starts."""

    FRESH = "from the beginning"
    OVER = "from the beginning, after removing an attempt without a checkpoint"
    CONTINUED = "from a checkpoint"
    FINISHED = "not at all: the run has reached a limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The state of an earlier run in the directory, relative to the settings of a new attempt."""

    start: Start
    changed: tuple[str, ...] = ()  # settings, such as `trainer.max_opt_steps: 10000 -> 20000`
    score: float = -math.inf  # score of a finished run
    message: str = ""  # why a finished run ended, and how to continue it

    @property
    def finished(self) -> bool:
        """True if there is nothing left to do."""
        return self.start is Start.FINISHED

    @property
    def resumes(self) -> bool:
        """True if the attempt starts from a checkpoint; also true for a finished run."""
        return self.finished or self.start is Start.CONTINUED


class Differences(NamedTuple):
    """The differences between the settings of an attempt and the saved settings."""

    saved: TrainerConfig
    changed: tuple[str, ...] = ()
    other_callbacks: bool = False


# Compares the settings saved in a run directory with those of an attempt; raises ConfigError if the
# run cannot be resumed with the new settings.
Compare = Callable[[Path], Differences]


class RunFolder:
    """A run directory. Caches what it reads: create a new object after taking the `RunLock`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The content of `run.json` with a corrected status, see `read_run`."""
        return read_run(self.path)

    @cached_property
    def checkpoints(self) -> list[Path]:
        """The checkpoints to resume from, see `find_resumable`."""
        return find_resumable(self.path)

    @property
    def has_run(self) -> bool:
        """True if an attempt has started in the directory."""
        return any((self.path / mark).exists() for mark in MARKS)

    @property
    def has_settings(self) -> bool:
        return (self.path / SETTINGS).is_file()

    @property
    def status(self) -> str:
        """The status in `run.json`, as `read_run` corrects it. If that file is missing or damaged,
        "running" while the lock is held, else "lost" if a run has started, or "not started"."""
        if "status" in self.facts:
            return str(self.facts["status"])
        with running(self.path) as is_running:
            if is_running:
                return "running"
        begun = any((self.path / name).exists() for name in (RUN_LOCK, RUN_JSON, "checkpoints"))
        return LOST if begun else NOT_STARTED

    @property
    def episode_limit(self) -> int | None:
        """The length limit of evaluation episodes that the run chose, in env steps, or None."""
        steps = self.facts.get(EPISODE_LIMIT)
        return steps if type(steps) is int and steps > 0 else None

    @property
    def is_done(self) -> bool:
        """True if the run has reached a limit, even if that limit has been raised since."""
        return self.status == DONE

    def refuse_unwritable(self) -> None:
        """Raises ConfigError if the directory cannot be created or written to."""
        folder = shortest(self.path)
        reason = unwritable(folder)
        if reason is not None:
            raise ConfigError(f"run_dir={folder}: {reason}")

    def refuse_in_use(self) -> None:
        """Raises ConfigError if a link or special file stands where a run writes its files, and
        RunInUse if a process is running.

        If the latter cannot be determined here, the lock decides later.
        """
        refuse_foreign(self.path)
        with running(self.path) as is_running:
            if is_running:
                raise RunInUse(self.path)

    def refuse_no_run(self) -> None:
        """Raises ConfigError if this is not the directory of a single run."""
        if not self.has_settings:
            raise ConfigError(
                f"resume: {self.path} is not a run directory: there is no {SETTINGS}"
                f"{hint_at_run(self.path)}. The command of a sweep resumes it with resume=auto"
            )

    def check_earlier_run(self, config: RunConfig, compare: Compare) -> EarlierRun:
        """Returns how an attempt with these settings would start; writes nothing.

        Raises ConfigError if the attempt would start in the directory of another run, or if
        settings were changed that a resumed run must keep, and CheckpointError if a finished run
        would continue but has no checkpoint.
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
            return EarlierRun(start=Start.OVER)  # without a checkpoint, settings may change freely
        differences = compare(self.path)
        if self.is_done and not self._can_continue(config, differences):
            return self._describe_finished(config, differences)
        if self.is_done and not self.checkpoints:
            raise CheckpointError(f"{self.path} is finished, but has no checkpoint to resume from")
        start = Start.CONTINUED if resumes else Start.OVER
        return EarlierRun(start=start, changed=differences.changed)

    def _can_continue(self, config: RunConfig, differences: Differences) -> bool:
        """True if the limit that ended the run has grown (or any limit, if none ended it), or if a
        callback ended it and the callbacks differ."""
        reason = str(self.facts.get("exit_reason"))
        limit = reason.partition(" ")[0]
        if reason.startswith(BY_CALLBACK) and differences.other_callbacks:
            return True
        ended_by = [limit] if limit in LIMITS else LIMITS
        return any(_limit_grew(name, differences.saved, config.trainer) for name in ended_by)

    def _describe_finished(self, config: RunConfig, differences: Differences) -> EarlierRun:
        facts = self.facts
        limit = str(facts.get("exit_reason")).partition(" ")[0]
        example = limit if limit in LIMITS else "max_opt_steps"
        score = facts.get("best_score" if config.objective == Objective.best else "final_score")
        with_score = f" with score {score:.10g}" if score is not None else ""
        return EarlierRun(
            start=Start.FINISHED,
            changed=differences.changed,
            score=float(score) if score is not None else -math.inf,
            message=f"{shortest(self.path)} is finished{with_score}: {facts.get('exit_reason')}; "
            f"set a larger limit, such as trainer.{example}, to continue",
        )


def _limit_grew(limit: str, saved: TrainerConfig, now: TrainerConfig) -> bool:
    before, after = getattr(saved, limit), getattr(now, limit)
    if before is None:  # this limit did not end the run
        return False
    needs_more_evals = limit == "stop_at_score" and now.stop_evals > saved.stop_evals
    return after is None or after > before or needs_more_evals
