"""`run.json`: what was run, where, with what, and how it ended."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from border_cli.core.errors import CheckpointError
from border_cli.core.threads import available_cores
from border_cli.run.files import write_json
from border_cli.run.lock import RunLock, look, this_process

PACKAGES = (
    "border-cli",
    "torch",
    "gymnasium",
    "numpy",
    "hydra-core",
    "omegaconf",
    "tensorboard",
    "rich",
)


NAME = "run.json"
KILLED = "its process was killed, or its machine went down"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a value of `run.json` may be."""

    fits: Callable[[Any], bool]
    allowed: str


def _or_null(kind: _Kind) -> _Kind:
    return _Kind(lambda value: value is None or kind.fits(value), f"{kind.allowed} or null")


def _list_of(kind: type, words: str) -> _Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(each, kind) for each in value)

    return _Kind(fits, f"a list of {words}")


_TEXT = _Kind(lambda value: isinstance(value, str), "a string")
_COUNT = _Kind(lambda value: type(value) is int and 0 <= value < 2**63, "a count")
_SCORE = _Kind(
    lambda value: type(value) is float or (type(value) is int and abs(value) < 2**63), "a number"
)

_OBJECT = _Kind(lambda value: isinstance(value, dict), "an object")

# What is read for use and not only kept.
KINDS = {
    **dict.fromkeys(("status", "host", "started"), _TEXT),
    **dict.fromkeys(("exit_reason", "bottleneck"), _or_null(_TEXT)),
    **dict.fromkeys(("pid", "opt_steps", "env_steps", "samples_total"), _COUNT),
    **dict.fromkeys(("saves_skipped", "save_failures", "recorder_failures"), _COUNT),
    **dict.fromkeys(("best_score", "final_score"), _or_null(_SCORE)),
    "best_opt_steps": _or_null(_COUNT),
    "import_paths": _list_of(str, "strings"),
    "attempts": _list_of(dict, "objects"),
    **dict.fromkeys(("seeds", "recorders_switched_off"), _OBJECT),
}
# What a resumed run takes over from the attempts before.
LASTING = (
    "started",
    "seeds",
    "import_paths",
    "best_score",
    "best_opt_steps",
    "final_score",
    "env_steps",
    "samples_total",
)
# What a command looks at that resumes a run.
NEEDED_TO_RESUME = ("status", "exit_reason", "pid", "host", "attempts", *LASTING)


class RunRecord:
    """The document `run.json` of one run; rewritten whole at every change.

    `status` is running, done, failed or interrupted, and as `read_run` tells it also killed. Owned
    by the thread that runs the command, within a `RunLock`.
    """

    def __init__(self, run_dir: Path, **facts: Any) -> None:
        self._path = run_dir / NAME
        process = this_process()
        started = now()
        self.content: dict[str, Any] = {
            "status": "running",
            "exit_reason": None,
            **process,
            "started": started,
            "ended": None,
            "best_score": None,
            "best_opt_steps": None,
            "final_score": None,
            "opt_steps": 0,
            "env_steps": 0,
            "samples_total": 0,
            **facts,
            "attempts": [
                {
                    "started": started,
                    "from_opt_steps": 0,
                    "command": facts.get("command"),
                    "pid": process["pid"],
                    "host": process["host"],
                }
            ],
            "git": git_state(Path.cwd()),
            "versions": versions(),
            "machine": machine(),
        }

    @classmethod
    def resumed(cls, run_dir: Path, from_opt_steps: int, **facts: Any) -> RunRecord:
        """The document of a run that goes on; what `facts` do not say is as it was."""
        before = _read(run_dir, NEEDED_TO_RESUME)
        record = cls(run_dir, **facts)
        (attempt,) = record.content["attempts"]
        record.content |= {name: before[name] for name in LASTING if name in before}
        record.content |= {"opt_steps": from_opt_steps, **facts}
        attempt["from_opt_steps"] = from_opt_steps
        record.content["attempts"] = [*before.get("attempts", []), attempt]
        return record

    def write(self) -> None:
        """Writes it as it stands."""
        write_json(self._path, self.content)

    def progress(self, counters: Mapping[str, Any]) -> None:
        """Tells how far the run is; nothing once it has ended. Raises `OSError` on a full disk."""
        if self.content["status"] == "running":
            self.content |= counters
            self.write()

    def end(self, status: str, reason: str, **facts: Any) -> None:
        """Tells how the run ended; the first end stays, and is written again where it was not."""
        if self.content["status"] == "running":
            self.content |= {"status": status, "exit_reason": reason, "ended": now(), **facts}
        self.write()


def read_run(run_dir: Path, *, needed: Collection[str] = ()) -> dict[str, Any]:
    """`run.json` with the true status: a run whose process is gone without an end was killed.

    Empty where there is none that can be read. A value of a wrong kind is as if it was not there;
    raises `CheckpointError` where it is `needed`. Nothing is written.
    """
    facts = _read(run_dir, needed)
    if facts.get("status") != "running":
        return facts
    with look(run_dir) as runs:
        if runs is not False:
            return facts
        facts = _read(run_dir)  # again: it may have ended just before the look
        if facts.get("status") == "running":
            facts |= {"status": "killed", "exit_reason": KILLED}
        return facts


def end_from_outside(
    run_dir: Path, process: Mapping[str, Any], status: str, reason: str, **facts: Any
) -> bool:
    """Tells how the run of another process ended, which is gone and could not tell it.

    Writes nothing where that process has told an end, or where the run is no longer its own: the
    lock is taken first, so nobody else goes on with the run meanwhile.
    """
    if not (run_dir / NAME).is_file():
        return False
    with RunLock(run_dir):
        found = _read(run_dir)
        if found.get("status") != "running" or not process.items() <= found.items():
            return False
        found |= {"status": status, "exit_reason": reason, "ended": now(), **facts}
        write_json(run_dir / NAME, found)
    return True


def import_paths(run_dir: Path) -> list[str]:
    """The folders in which a run found its modules, as it says itself."""
    return list(read_run(run_dir, needed=("import_paths",)).get("import_paths", []))


def _read(run_dir: Path, needed: Collection[str] = ()) -> dict[str, Any]:
    path = run_dir / NAME
    try:
        facts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    known = {name: kind for name, kind in KINDS.items() if name in facts}
    wrong = [name for name, kind in known.items() if not kind.fits(facts[name])]
    for name in wrong:
        if name in needed:
            raise CheckpointError(
                f"{path} is damaged: {name} must be {KINDS[name].allowed}, got {facts[name]!r:.80}"
            )
    return {name: value for name, value in facts.items() if name not in wrong}


def versions() -> dict[str, str]:
    """The versions of Python and of the packages a result depends on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Where the run happens."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": available_cores(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit and dirty flag of the user's repository; None where there is none or no git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        # Without optional locks the user's own git commands are never in each other's way.
        changes = _git(
            folder, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()


def now() -> str:
    """The local time with its offset from UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
