"""What a result depends on besides its settings: versions, the machine, the user's repository."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from border_cli.system.foreign import mark_of
from border_cli.system.machine import available_cores

# Programs that the settings of a repository name for files.
_FILTERS = re.compile(r"(?m)^(local|worktree)\s+(filter|lfs\.extension)\..*\.(clean|process)$")
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
    """Commit and dirty flag of the user's repository; None without a repository, without git, or
    where border_cli wrote the repository's folder.

    `dirty` is None where the repository has filters, which `git status` would run.
    """
    top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if top is None or mark_of(top):
        return None
    try:
        commit = _git(top, "rev-parse", "HEAD")
        scopes = _git(top, "config", "--show-scope", "--includes", "--name-only", "--list")
        if _FILTERS.search(scopes):
            return {"commit": commit, "dirty": None}
        changes = _git(
            top, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str:
    """What git answers. It runs no hook, no monitor of files and no program that fetches objects.

    Without optional locks the user's own git commands are never in each other's way.
    """
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(
        ["git", "--no-optional-locks", *safe, *arguments],
        cwd=folder,
        env={**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"},
        capture_output=True,
        text=True,
        timeout=5,
        check=True,
    )
    return done.stdout.strip()
