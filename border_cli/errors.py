"""The errors that border_cli expects; each knows the exit status of the command line.

BorderError
 ├── ConfigError             settings refused before anything is built        exit 2
 │    ├── UnknownSetting     a Python caller assigned a setting that does not exist
 │    ├── NotBegun           the run directory is another run's
 │    ├── MissingPackage     a chosen component needs a package               exit 2
 │    ├── ClusterRefused     a Ray cluster cannot run what is asked of it     exit 2
 │    └── ProbeFailed        the environment failed as it was tried           exit 2
 ├── RunFailed               the run cannot go on                             exit 1
 │    ├── ActorCrashed       an actor is past its restarts, or fails again and again
 │    ├── ActorHung          an actor did not stop by its deadline
 │    ├── Stalled            a part made no step for `stall_timeout_s`
 │    ├── BadStep            an observation, reward or flag of an environment does not fit
 │    ├── OutOfMemory        an allocation failed
 │    ├── RunDeleted         files of the run were deleted while it ran
 │    └── NotFinite          a NaN or an infinity in data or loss
 ├── Interrupted             the user or the system asked the run to stop     exit 128 + signal
 └── CheckpointError         a run directory or checkpoint cannot be read     exit 2
"""

from __future__ import annotations

import errno
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from border_cli.words import masked

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit of a file's size


class BorderError(Exception):
    """The root of every failure that is reported as a message, not as a stack trace.

    `details` end the message where it is shown in full: a traceback, or stacks.
    """

    exit_status = 1

    def __init__(self, message: str = "", details: str = "") -> None:
        super().__init__(message + details)
        self._details = details

    @property
    def message(self) -> str:
        """All of it without the details."""
        return str(self).removesuffix(self._details)


class ConfigError(BorderError):
    """A setting is invalid; the message names it, its value and what is allowed."""

    exit_status = 2


class UnknownSetting(ConfigError, AttributeError):
    """A Python caller assigned a setting that does not exist; names the nearest that does."""


class NotBegun(ConfigError):
    """A run was refused in a run directory of another run, which it leaves as it is."""


class MissingPackage(ConfigError):
    """A chosen component needs a package that is not installed.

    `pip install "border-cli[ray]"` needs no border-cli on an index where one is installed.
    """

    def __init__(self, what: str, package: str, then: str = "") -> None:
        quoted = f'"{package}"' if "[" in package else package
        super().__init__(
            f"{what} needs a package that is not installed: pip install {quoted}{then}"
        )


class ClusterRefused(ConfigError):
    """A Ray cluster or one of its nodes cannot run what is asked. Crosses processes as it is."""


class ProbeFailed(ConfigError):
    """An environment that was tried before the run raised or hung; names the call and the line."""


class RunFailed(BorderError):
    """The run ended before its budget; what was saved stays."""


class ActorCrashed(RunFailed):
    """An actor failed and is not restarted; carries the reason and its first traceback."""

    def __init__(self, actor_id: int, why_no_more: str, first_traceback: str) -> None:
        self.actor_id = actor_id
        self.why_no_more = why_no_more
        self.first_traceback = first_traceback
        *_, last_frame = first_traceback.split('\n  File "')
        lines = last_frame.strip().splitlines() or [""]
        said = (each for each in lines[1:] if each and not each.startswith(" "))
        error = next(said, lines[-1])
        super().__init__(
            f"actor {actor_id} failed, first with {error}; {why_no_more}",
            f". Its first failure:\n{first_traceback}",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For its way out of the process that supervises actors on a cluster."""
        return type(self), (self.actor_id, self.why_no_more, self.first_traceback)


class ActorHung(RunFailed):
    """An actor did not stop by its deadline; carries the stack of the thread that blocks."""

    def __init__(self, actor_id: int, timeout_s: float, stack: str) -> None:
        self.actor_id = actor_id
        super().__init__(
            f"actor {actor_id} did not stop within {timeout_s:g} s", f"; its stack:\n{stack}"
        )


class Stalled(RunFailed):
    """A part made no step for `trainer.stall_timeout_s`; carries the stacks of all threads."""


class BadStep(RunFailed):
    """An observation, reward or flag of an environment does not fit.

    It does not use up restarts: a restarted actor would fail, too. Crosses processes as it is.
    """

    def within(self, place: str) -> BadStep:
        """This error with the place in front."""
        return BadStep(f"{place}: {self}")

    def of_actor(self, actor_id: int, env_steps: int) -> BadStep:
        """This error with the actor and its env steps, of all its environments, in front."""
        return self.within(f"actor {actor_id}, after {env_steps:,} env steps")


class OutOfMemory(RunFailed):
    """An allocation failed; the message says during what, and which settings would take less."""


class RunDeleted(RunFailed):
    """Files that a running run writes or relies on were deleted or moved; names the outermost."""

    def __init__(self, path: Path) -> None:
        while not path.parent.exists():
            path = path.parent
        super().__init__(f"{path} was deleted or moved while the run was running")


class NotFinite(RunFailed):
    """A NaN or an infinity; the message names the quantity and its step."""


class Interrupted(BorderError):
    """A signal asked the run to stop; everything in flight was saved."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.exit_status = 128 + signum
        super().__init__(f"stopped by {signal.Signals(signum).name}")


class CheckpointError(BorderError):
    """A run directory or a checkpoint is missing, incomplete or not ours."""

    exit_status = 2


def reason_of(error: BaseException) -> str:
    """Why something failed, in one line and without passwords: for tables and run.json. A message
    of ours says it all."""
    message = error.message if isinstance(error, BorderError) else str(error)
    first_line = message.strip().partition("\n")[0]
    if first_line and isinstance(error, BorderError):
        return masked(first_line)
    return masked(": ".join(filter(None, (type(error).__name__, first_line))))  # may be empty


def place_of(error: BaseException) -> str:
    """`file:line: Error: message` of where code of the user failed, as far as it is the user's."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {kind}: {error.msg}"
    ours = str(Path(__file__).parent)
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if "importlib" not in each.filename and not each.filename.startswith(ours)
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{kind}: {error}"


@contextmanager
def reachable(kind: type[BorderError]) -> Iterator[None]:
    """Raises `kind` with the path and the reason where the system denies a file or a folder.

    A full disk names no path. Other failures without one, such as a broken pipe, stay as they are.
    """
    try:
        yield
    except OSError as error:
        here = "the current directory" if isinstance(error, FileNotFoundError) else None
        full = "a file could not be written" if error.errno in FULL else here
        path = full if error.filename is None else error.filename
        if path is None:
            raise
        raise kind(f"{path}: {error.strerror or error}") from error
