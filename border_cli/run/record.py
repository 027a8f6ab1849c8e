"""`run.json`: what was run, where, with what, and how it ended."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from border_cli.core.seeding import ActorStream, Branch, derived_seed
from border_cli.core.threads import available_cores
from border_cli.run.files import write_json
from border_cli.run.lock import look, this_process

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
KILLED = "its process is gone: killed, or lost with its machine"
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
        before = _read(run_dir)
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


def read_run(run_dir: Path) -> dict[str, Any]:
    """`run.json` with the true status: a run whose process is gone without an end was killed.

    Empty where there is none that can be read. Nothing is written.
    """
    facts = _read(run_dir)
    if facts.get("status") != "running":
        return facts
    with look(run_dir) as runs:
        if runs is not False:
            return facts
        facts = _read(run_dir)  # again: it may have ended just before the look
        if facts.get("status") == "running":
            facts |= {"status": "killed", "exit_reason": KILLED}
        return facts


def import_paths(run_dir: Path) -> list[str]:
    """The folders in which a run found its modules, as it says itself."""
    found = read_run(run_dir).get("import_paths", [])
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _read(run_dir: Path) -> dict[str, Any]:
    try:
        facts = json.loads((run_dir / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def derived_seeds(seed: int, num_actors: int) -> dict[str, Any]:
    """The seeds that follow from the one; the first life of each actor."""
    return {
        "seed": seed,
        "learner": derived_seed(seed, Branch.LEARNER),
        "replay_buffer": derived_seed(seed, Branch.REPLAY_BUFFER),
        "evaluation": derived_seed(seed, Branch.EVALUATION),
        "actor_envs": [
            derived_seed(seed, Branch.ACTOR, actor_id, 0, ActorStream.ENV)
            for actor_id in range(num_actors)
        ],
    }


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
