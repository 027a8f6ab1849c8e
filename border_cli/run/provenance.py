"""Versions, machine and repository: the facts besides settings that a result depends on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from border_cli.system.foreign import find_mark
from border_cli.system.machine import available_cores

# Git settings that run programs on files.
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
    """Returns the versions of Python and of the packages that a result depends on."""
    found_versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found_versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return found_versions


def machine() -> dict[str, Any]:
    """Returns a description of this machine."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": available_cores(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Returns the commit and the dirty flag of the user's repository; None without a repository, if
    git is missing or fails, or if border_cli wrote the folder of the repository.

    `dirty` is None if the repository has filters, because `git status` would run them.
    """
    paths = (folder, *folder.parents)  # `Path.exists` raises if access is denied
    top = next((path for path in paths if os.path.exists(path / ".git")), None)  # noqa: PTH110
    if top is None or find_mark(top):
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
    """Runs a git command without hooks, file monitors and fetching, and returns its output.

    Without optional locks, it does not interfere with git commands of the user.
    """
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    process = subprocess.run(
        ["git", "--no-optional-locks", *safe, *arguments],
        cwd=folder,
        env={**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"},
        capture_output=True,
        text=True,
        timeout=5,
        check=True,
    )
    return process.stdout.strip()
