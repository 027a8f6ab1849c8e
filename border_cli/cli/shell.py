"""Lines for shells: commands that a user can type next, and the result line of a quiet run."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from border_cli.core.words import counted

_PLAIN = re.compile(r"[\w./@%+-]+( [\w./@%+-]+)*", re.ASCII)  # Hydra needs no quotes then


def command(name: str) -> str:
    """How the command beside this one is typed: by its path where that is not on PATH."""
    beside = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) or not beside.is_file() else shlex.quote(str(beside))


def shortest(path: Path) -> Path:
    """Relative to the current folder where it lies below it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def setting(key: str, value: str) -> str:
    """`key=value`, quoted for Hydra where it would read something else in the value."""
    if _PLAIN.fullmatch(value):
        return f"{key}={value}"
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)  # a backslash counts before a quote only
    trailing = len(value) - len(value.rstrip("\\"))
    return f"{key}='{escaped}{chr(92) * trailing}'"


def result_line(run_dir: Path, facts: Mapping[str, Any]) -> str:
    """The only line that a quiet run prints on standard output. `facts` are those of `run.json`."""
    best, opt_steps = facts.get("best_score"), facts.get("best_opt_steps")
    if best is None or opt_steps is None:
        return f"no score: {shortest(run_dir)}"
    return f"best score {best:.10g} at {counted(opt_steps, 'update')}: {shortest(run_dir)}"


def resume_run(run_dir: Path) -> str:
    """The whole command that goes on with a run."""
    return f"{command('border-train')} {shlex.quote(setting('resume', str(shortest(run_dir))))}"


def resume_sweep(typed: Sequence[str]) -> str:
    """The command of a sweep with a folder of its own, so that it runs only what is not done."""
    name, *words = typed
    rest = [each for each in words if not each.startswith("resume=")]
    return " ".join([command(name), *map(shlex.quote, [*rest, "resume=auto"])])
