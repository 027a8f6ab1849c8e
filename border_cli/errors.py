"""The expected errors of border_cli, with the exit status of the command line.

BorderError
 ├── ConfigError             settings refused before anything is built        exit 2
 │    ├── UnknownSetting     a Python caller assigned a setting that does not exist
 │    ├── NotBegun           the run directory is in use, or its run cannot continue
 │    ├── MissingPackage     a chosen component needs a package               exit 2
 │    ├── ClusterRefused     a Ray cluster is unreachable or unsuitable       exit 2
 │    └── ProbeFailed        the environment failed in a trial before the run exit 2
 ├── RunFailed               the run cannot continue                          exit 1
 │    ├── ActorCrashed       an actor used up its restarts or fails repeatedly
 │    ├── ActorHung          an actor did not stop by its deadline
 │    ├── Stalled            a component made no progress for `stall_timeout_s`
 │    ├── BadStep            an observation, reward or flag of an environment is invalid
 │    ├── OutOfMemory        an allocation failed
 │    ├── RunDeleted         files of the run were deleted while it was running
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

from border_cli.words import mask_secrets

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, quota, maximum file size


class BorderError(Exception):
    """Base class of failures that are reported as a message instead of a stack trace.

    `details`, such as a traceback, are appended to the message when it is shown in full.
    """

    exit_status = 1

    def __init__(self, message: str = "", details: str = "") -> None:
        super().__init__(message + details)
        self._details = details

    @property
    def message(self) -> str:
        """The message without the details."""
        return str(self).removesuffix(self._details)


class ConfigError(BorderError):
    """A setting is invalid; the message names it, its value and what is allowed."""

    exit_status = 2


class UnknownSetting(ConfigError, AttributeError):
    """A Python caller assigned a setting that does not exist; suggests the most similar one."""


class NotBegun(ConfigError):
    """The run directory is in use, or has a run that the job cannot continue; it is unchanged."""


class MissingPackage(ConfigError):
    """A chosen component needs packages, separated by spaces, that are not installed.

    `pip install "border-cli[ray]"` works even if the installed border-cli is on no package index.
    """

    def __init__(self, what: str, package: str, then: str = "") -> None:
        parts = package.split()
        quoted = " ".join(f'"{part}"' if {*part} & {*"[<"} else part for part in parts)
        super().__init__(
            f"{what} needs a package that is not installed: pip install {quoted}{then}"
        )


class ClusterRefused(ConfigError):
    """A Ray cluster is unreachable or cannot run what is requested. Can be pickled unchanged."""


class ProbeFailed(ConfigError):
    """An environment raised or hung in a trial before the run; names the call and the line."""


class RunFailed(BorderError):
    """A run, sweep or study failed, or a command on saved runs; saved files are retained."""


class ActorCrashed(RunFailed):
    """An actor failed and is not restarted; contains the reason and the first traceback."""

    def __init__(self, actor_id: int, why_no_more: str, first_traceback: str) -> None:
        self.actor_id = actor_id
        self.why_no_more = why_no_more
        self.first_traceback = first_traceback
        *_, last_frame = first_traceback.split('\n  File "')
        lines = last_frame.strip().splitlines() or [""]
        messages = (line for line in lines[1:] if line and not line.startswith(" "))
        error = next(messages, lines[-1])
        super().__init__(
            f"actor {actor_id} failed, first with {error}; {why_no_more}",
            f". Its first failure:\n{first_traceback}",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickling: on a cluster, another process supervises the actors."""
        return type(self), (self.actor_id, self.why_no_more, self.first_traceback)


class ActorHung(RunFailed):
    """An actor did not stop by its deadline; contains the stack of the blocking thread."""

    def __init__(self, actor_id: int, timeout_s: float, stack: str) -> None:
        self.actor_id = actor_id
        super().__init__(
            f"actor {actor_id} did not stop within {timeout_s:g} s", f"; its stack:\n{stack}"
        )


class Stalled(RunFailed):
    """A component made no progress for `trainer.stall_timeout_s`; contains thread stacks."""


class BadStep(RunFailed):
    """An observation, reward or flag of an environment is invalid.

    The actor is not restarted, because it would fail again. Can be pickled unchanged.
    """

    def within(self, place: str) -> BadStep:
        """Returns this error with the place prepended."""
        return BadStep(f"{place}: {self}")

    def of_actor(self, actor_id: int, env_steps: int) -> BadStep:
        """Returns this error with the actor and the env steps of all its environments prepended."""
        return self.within(f"actor {actor_id}, after {env_steps:,} env steps")


class OutOfMemory(RunFailed):
    """An allocation failed; the message says during what, and which settings reduce memory."""


class RunDeleted(RunFailed):
    """Files of a running run were deleted or moved; names the outermost missing path."""

    def __init__(self, path: Path) -> None:
        while not path.parent.exists():
            path = path.parent
        super().__init__(f"{path} was deleted or moved while the run was running")


class NotFinite(RunFailed):
    """A value is NaN or infinite; the message names the quantity and the update."""


class Interrupted(BorderError):
    """A signal asked the run to stop."""

    def __init__(self, signum: int) -> None:
        self.signum = signum
        self.exit_status = 128 + signum
        super().__init__(f"stopped by {signal.Signals(signum).name}")


class CheckpointError(BorderError):
    """A run directory or checkpoint is missing, incomplete or not of border_cli."""

    exit_status = 2


def reason_of(error: BaseException) -> str:
    """Returns the reason for a failure in one line without passwords, for tables and run.json. The
    type of the error is omitted for a `BorderError`, whose message is sufficient."""
    message = error.message if isinstance(error, BorderError) else str(error)
    first_line = message.strip().partition("\n")[0]
    if first_line and isinstance(error, BorderError):
        return mask_secrets(first_line)
    return mask_secrets(": ".join(filter(None, (type(error).__name__, first_line))))


def place_of(error: BaseException) -> str:
    """Returns `file:line: Error: message` with the last line of user code in the traceback. Without
    user code in the traceback the place is omitted."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {kind}: {error.msg}"
    package_dir = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(package_dir)
    ]
    location = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return f"{location}{kind}: {error}"


@contextmanager
def os_errors_as(kind: type[BorderError]) -> Iterator[None]:
    """Converts an OSError into `kind`, with the path and the reason. A full disk and a deleted
    current directory are converted even without a path; other errors without one are re-raised."""
    try:
        yield
    except OSError as error:
        missing = "the current directory" if isinstance(error, FileNotFoundError) else None
        subject = "a file could not be written" if error.errno in FULL else missing
        path = subject if error.filename is None else error.filename
        if path is None:
            raise
        raise kind(f"{path}: {error.strerror or error}") from error
