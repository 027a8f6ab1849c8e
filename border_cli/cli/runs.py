"""`border-runs`: lists runs, compares two, and removes what is no longer needed."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from border_cli.analysis.difference import differences
from border_cli.analysis.listing import SPANS, Row, filter_rows, row_of, sort_rows
from border_cli.analysis.load import SavedRun, find_runs
from border_cli.cli.flags import Parser
from border_cli.cli.plain_command import (
    integer_reader,
    plain_command,
    until_nobody_reads,
)
from border_cli.errors import ConfigError
from border_cli.messages import say
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import paused_garbage_collection
from border_cli.recorder import figures
from border_cli.run.sweep_folder import read_sweep
from border_cli.system.files import SETTINGS
from border_cli.words import escape_controls, pluralize

OUTPUTS = Path("outputs")  # default directory of runs
HELP = """\
border-runs: lists runs, compares two, and removes what is no longer needed.

  border-runs [PATH …] [--where CONDITIONS] [--sort KEY] [--json]
  border-runs diff RUN_DIR RUN_DIR [--json]
  border-runs rm PATH … [--where CONDITIONS] [--yes]
  border-runs prune PATH … [--where CONDITIONS] [--keep N] [--yes]

  PATH                a run directory, or a directory that contains runs; default: outputs. In
                      a sweep directory, jobs that have not started are listed as well
  --where CONDITIONS  only runs that meet all conditions: 'agent=sac best>200 age<7d'. Keys are
                      those of the list (status, agent, env, seed, best, last, opt_steps, env_steps,
                      duration, age, host, started, ended, reason, folder) and all settings, such
                      as agent.gamma; comparisons are = != < <= > >=; * in a text matches anything
  --sort KEY          sorts numbers from high to low and texts from A to Z; --sort=-KEY reverses
                      the order; default: newest run first, the jobs of a sweep by number
  --json              prints one list (diff: one object) with all values and settings

  diff                shows the differences between two runs: settings, versions, commit, results
  rm                  removes runs, but only files that border_cli has written
  prune               removes old checkpoints; keeps the newest one, milestones and the best model
  --keep N            number of newest checkpoints that prune keeps; with 0, a run without
                      milestones can still be evaluated but not resumed
  --yes               removes without asking
  --version, --help

  rm and prune never follow links, and skip runs that are still running.

Examples
  border-runs --where 'agent=dqn agent.double=true' --sort best
  border-runs rm outputs --where 'status=failed age>7d'
"""

OPTIONS = {  # options by subcommand
    "": ("--where", "--sort", "--json"),
    "diff": ("--json",),
    "rm": ("--where", "--yes"),
    "prune": ("--where", "--keep", "--yes"),
}
FLAGS = ("--json", "--yes")
UNREMARKABLE = ("done", "running", "not started")  # statuses shown without a reason


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    command = typed[0] if typed[0] in OPTIONS else ""
    parser = Parser("border-runs")
    parser.add_argument("paths", nargs="*", type=Path)
    for option in OPTIONS[command]:
        if option in FLAGS:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, default="")
    arguments = parser.parse_intermixed_args(typed[1:] if command else typed)
    with until_nobody_reads(), paused_garbage_collection():  # a fifth faster for ten thousand runs
        if not command:
            _list(arguments)
        elif command == "diff":
            _diff(arguments)
        else:
            _remove(command, arguments)


def _remove(command: str, arguments: argparse.Namespace) -> None:
    # imported late: numpy, which the list does not need
    from border_cli.cli.removing import prune_runs, remove_runs

    if not arguments.paths:
        raise ConfigError(f"{command}: name run directories, or directories that contain runs")
    rows = filter_rows(rows_of(arguments.paths), arguments.where)
    folders = [row.folder for row in rows if (row.folder / SETTINGS).is_file()]
    if command == "rm":
        remove_runs(folders, arguments.paths, agreed=arguments.yes)
    else:
        prune_runs(
            folders, keep=integer_reader(0)("--keep", arguments.keep or "1"), agreed=arguments.yes
        )


def _list(arguments: argparse.Namespace) -> None:
    paths = arguments.paths or [OUTPUTS]
    rows = rows_of(paths)
    selected = filter_rows(rows, arguments.where)
    if arguments.sort:
        selected = sort_rows(selected, arguments.sort)
    if arguments.json:
        documents = ",\n".join(json.dumps(row_to_json(row)) for row in selected)
        sys.stdout.write(f"[{documents}]\n")
    elif not rows:
        say(f"no runs in {', '.join(map(str, paths))}")
    elif not selected:
        say(f"none of {pluralize(len(rows), 'run')} meets {arguments.where}")
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else math.inf
        lines = table(selected, width)
        if is_terminal and not os.environ.get("NO_COLOR"):
            sys.stdout.write(f"\x1b[2m{escape_controls(lines.pop(0))}\x1b[0m\n")
        lines += [*_failure_reasons(selected), _summary(selected)]
        say("\n".join(line.replace("\n", " ") for line in lines))


def rows_of(paths: Sequence[Path]) -> list[Row]:
    """Returns the runs in and below `paths`, newest first. For a sweep among `paths`, all its jobs
    come first, in order, including those without a run."""
    existing = [path for path in paths if path != OUTPUTS or path.is_dir()]
    now_s = time.time()
    rows = {os.path.realpath(path): row_of(SavedRun(path), now_s) for path in find_runs(existing)}
    jobs = [row for root in existing for row in _jobs(root, rows)]
    by_age = sorted(rows.values(), key=lambda row: (row.value("started") or "", str(row.folder)))
    return jobs + by_age[::-1]


def _jobs(root: Path, rows: dict[str, Row]) -> Iterator[Row]:
    """Yields the jobs of a sweep and removes their runs from `rows`."""
    plan = read_sweep(root)
    if plan is None:
        return
    for job in plan.jobs:
        folder = root / job.folder
        existing_row = rows.pop(os.path.realpath(folder), None)
        row = existing_row or row_of(SavedRun(folder, job.values), time.time())
        swept = {key: job.values.get(key) for key in plan.swept}
        yield replace(row, values={"job": job.number, **row.values}, swept=swept)


def row_to_json(row: Row) -> dict[str, Any]:
    """Returns a run as JSON: the values of the list and all settings."""
    return {
        **{f"{key}_s" if key in SPANS else key: value for key, value in row.values.items()},
        "settings": row.run.labels,
    }


def format_value(value: Any) -> str:
    """Returns text unchanged and other values as they would be typed."""
    if value is None:
        return figures.UNKNOWN
    return value if isinstance(value, str) else json.dumps(value)


# Key -> title and formatter, in the order of the table. Numbers are right-aligned.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "job": ("job", format_value),
    "status": ("status", format_value),
    "agent": ("agent", format_value),
    "env": ("env", format_value),
    "seed": ("seed", format_value),
    "best": ("best", figures.score),
    "last": ("last", figures.score),
    "opt_steps": ("updates", figures.count),
    "env_steps": ("env steps", figures.count),
    "duration": ("duration", figures.duration),
    "age": ("age", figures.age),
    "host": ("host", format_value),
    "folder": ("run directory", format_value),
}
TO_THE_RIGHT = {"job", "seed", "best", "last", "opt_steps", "env_steps", "duration", "age"}
LESS_IMPORTANT = ("host", "env_steps", "last", "duration", "age", "opt_steps", "seed", "env")


def table(rows: Sequence[Row], width: float) -> list[str]:
    """Returns the header and rows, aligned in columns. To fit `width`, shortens directories by
    their common parent, then drops columns."""
    columns = _columns(rows)
    notes = []
    if _width(columns) > width:
        with suppress(ValueError):  # no common parent
            parent = os.path.commonpath([row.folder.parent for row in rows]) or "."
            columns["folder"][1:] = [os.path.relpath(row.folder, parent) for row in rows]
            notes = [f"run directories are relative to {parent}"]
        droppable, dropped = [*LESS_IMPORTANT], []
        while droppable and _width(columns) > width:
            dropped.append(columns.pop(droppable.pop(0))[0])
        notes += [f"no room for {', '.join(dropped)}"] if dropped else []
    aligned = []
    for key, texts in columns.items():
        align = str.rjust if key in TO_THE_RIGHT else str.ljust
        longest = max(map(len, texts))
        aligned.append([align(text, longest) for text in texts])
    return [*("  ".join(line).rstrip() for line in zip(*aligned, strict=True)), *notes]


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Returns the title and texts of each column. Sweeps add job numbers and swept settings."""
    columns: dict[str, list[str]] = {}
    swept = dict.fromkeys(key for row in rows for key in row.swept if key not in COLUMNS)
    for key, (title, text) in COLUMNS.items():
        for name in swept if key == "best" else ():
            columns[name] = [name, *(format_value(row.swept.get(name)) for row in rows)]
        columns[key] = [title, *(text(row.value(key)) for row in rows)]
    if not any("job" in row.values for row in rows):
        del columns["job"]
    return columns


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, texts)) + 2 for texts in columns.values()) - 2


def _failure_reasons(rows: Sequence[Row]) -> list[str]:
    """Returns why jobs of a sweep failed, were stopped or skipped, one line each."""
    return [
        f"job {row.value('job')} {row.value('status')}: {row.value('reason') or 'no run.json'}"
        for row in rows
        if "job" in row.values and row.value("status") not in UNREMARKABLE
    ]


def _summary(rows: Sequence[Row]) -> str:
    """Returns a summary such as `12 runs: 10 done, 2 failed`."""
    by_status = Counter(str(row.value("status")) for row in rows)
    statuses = ", ".join(f"{count:,} {status}" for status, count in by_status.most_common())
    noun = "job" if all("job" in row.values for row in rows) else "run"
    return f"{pluralize(len(rows), noun)}: {statuses}"


def _diff(arguments: argparse.Namespace) -> None:
    from border_cli.run.finding import find_run

    if len(arguments.paths) != 2:
        raise ConfigError(f"diff compares two run directories, got {len(arguments.paths)}")
    first, second = (row_of(SavedRun(find_run(path)[0]), time.time()) for path in arguments.paths)
    sections = differences(first, second)
    if arguments.json:
        say(json.dumps({"runs": [str(first.folder), str(second.folder)], **sections}))
        return
    say(f"A  {first.folder}\nB  {second.folder}")
    for kind, values_by_key in sections.items():
        if values_by_key:
            say(kind)
        for key, values in values_by_key.items():
            text = COLUMNS[key][1] if key in COLUMNS else format_value
            before, after = ("null" if value is None else text(value) for value in values)
            say(f"  {key}: {before} -> {after}")
    if not any(sections.values()):
        say("no differences")


main = partial(plain_command, "border-runs", HELP, _run, default=[str(OUTPUTS)])
command = main  # entry point of the console script
