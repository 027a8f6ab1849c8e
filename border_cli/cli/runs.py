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
from border_cli.analysis.listing import SPANS, Row, ordered, row_of, where
from border_cli.analysis.load import SavedRun, find_runs
from border_cli.cli.flags import Parser
from border_cli.cli.plain_command import plain_command, shortened, until_nobody_reads, whole
from border_cli.errors import ConfigError
from border_cli.messages import say
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import not_collecting
from border_cli.recorder import figures
from border_cli.run.sweep_folder import read_sweep
from border_cli.system.files import SETTINGS
from border_cli.words import counted, visible

OUTPUTS = Path("outputs")  # where runs are written by default
HELP = """\
border-runs: lists runs, compares two, and removes what is no longer needed.

  border-runs [PATH …] [--where CONDITIONS] [--sort KEY] [--json]
  border-runs diff RUN_DIR RUN_DIR [--json]
  border-runs rm PATH … [--where CONDITIONS] [--yes]
  border-runs prune PATH … [--where CONDITIONS] [--keep N] [--yes]

  PATH                a run directory, or a directory with runs below it; default: outputs. Of the
                      directory of a sweep, also the jobs that have not started
  --where CONDITIONS  only runs that meet all of them: 'agent=sac best>200 age<7d'. Keys are those
                      of the list (status, agent, env, seed, best, last, opt_steps, env_steps,
                      duration, age, host, started, reason, folder) and all settings, such as
                      agent.gamma; comparisons are = != < <= > >=, * in a text is anything
  --sort KEY          numbers from the highest, texts from A; --sort=-KEY the other way round;
                      default: the newest run first, and a sweep by its jobs
  --json              prints one list (diff: one object) with all values and settings

  diff                what differs between two runs: settings, versions, commit and results
  rm                  removes runs: all files that border_cli has written there, and no others
  prune               removes checkpoints but for the newest one and the best model
  --keep N            how many of the newest checkpoints prune keeps; 0: none, so that the run can
                      be evaluated but no longer resumed
  --yes               removes without asking
  --version, --help

  rm and prune never follow a link, and leave out every run that is still running.

Examples
  border-runs --where 'agent=dqn agent.double=true' --sort best
  border-runs rm outputs --where 'status=failed age>7d'
"""

OPTIONS = {  # by the word in front
    "": ("--where", "--sort", "--json"),
    "diff": ("--json",),
    "rm": ("--where", "--yes"),
    "prune": ("--where", "--keep", "--yes"),
}
FLAGS = ("--json", "--yes")
UNREMARKABLE = ("done", "running", "not started")  # statuses that need no reason


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    chosen = typed[0] if typed[0] in OPTIONS else ""
    parser = Parser("border-runs")
    parser.add_argument("paths", nargs="*", type=Path)
    for each in OPTIONS[chosen]:
        if each in FLAGS:
            parser.add_argument(each, action="store_true")
        else:
            parser.add_argument(each, default="")
    asked = parser.parse_intermixed_args(typed[1:] if chosen else typed)
    with until_nobody_reads(), not_collecting():  # ten thousand runs: a fifth of the time
        if not chosen:
            _list(asked)
        elif chosen == "diff":
            _diff(asked)
        else:
            _remove(chosen, asked)


def _remove(chosen: str, asked: argparse.Namespace) -> None:
    # imported late: numpy, which a list does not need
    from border_cli.cli.removing import prune_runs, remove_runs

    if not asked.paths:
        raise ConfigError(f"{chosen}: name run directories, or directories with runs below")
    rows = where(rows_of(asked.paths), asked.where)
    folders = [row.folder for row in rows if (row.folder / SETTINGS).is_file()]
    if chosen == "rm":
        remove_runs(folders, asked.paths, agreed=asked.yes)
    else:
        prune_runs(folders, keep=whole(0)("--keep", asked.keep or "1"), agreed=asked.yes)


def _list(asked: argparse.Namespace) -> None:
    paths = asked.paths or [OUTPUTS]
    rows = rows_of(paths)
    found = where(rows, asked.where)
    if asked.sort:
        found = ordered(found, asked.sort)
    if asked.json:
        listed = ",\n".join(json.dumps(document(row)) for row in found)
        sys.stdout.write(f"[{listed}]\n")
    elif not rows:
        say(f"no runs in {', '.join(map(str, paths))}")
    elif not found:
        say(f"none of {counted(len(rows), 'run')} meets {asked.where}")
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else math.inf
        lines = table(found, width)
        if is_terminal and not os.environ.get("NO_COLOR"):
            sys.stdout.write(f"\x1b[2m{visible(lines.pop(0))}\x1b[0m\n")
        lines += [*_reasons(found), _numbers(found)]
        say("\n".join(line.replace("\n", " ") for line in lines))


def rows_of(paths: Sequence[Path]) -> list[Row]:
    """The runs in and below `paths`, the newest first, and of a path that is a sweep its jobs in
    their order, those without a run as well."""
    existing = [each for each in paths if each != OUTPUTS or each.is_dir()]
    now_s = time.time()
    rows = {os.path.realpath(each): row_of(SavedRun(each), now_s) for each in find_runs(existing)}
    jobs = [row for root in existing for row in _jobs(root, rows)]
    by_age = sorted(rows.values(), key=lambda row: (row.value("started") or "", str(row.folder)))
    return jobs + by_age[::-1]


def _jobs(root: Path, rows: dict[str, Row]) -> Iterator[Row]:
    """The jobs of a sweep, out of `rows` where they have a run there."""
    plan = read_sweep(root)
    if plan is None:
        return
    for job in plan.jobs:
        folder = root / job.folder
        begun = rows.pop(os.path.realpath(folder), None)
        row = begun or row_of(SavedRun(folder, job.values), time.time())
        swept = {key: job.values.get(key) for key in plan.swept}
        yield replace(row, values={"job": job.number, **row.values}, swept=swept)


def document(row: Row) -> dict[str, Any]:
    """A run as JSON: the values of the list and all settings."""
    return {
        **{f"{key}_s" if key in SPANS else key: value for key, value in row.values.items()},
        "settings": row.run.labels,
    }


def plain(value: Any) -> str:
    """A text or a number as it is, and other values as they are typed."""
    if value is None:
        return figures.UNKNOWN
    return value if isinstance(value, str) else json.dumps(value)


# Their keys, titles and texts, in the order of the table; numbers are set to the right.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "job": ("job", plain),
    "status": ("status", plain),
    "agent": ("agent", plain),
    "env": ("env", plain),
    "seed": ("seed", plain),
    "best": ("best", figures.score),
    "last": ("last", figures.score),
    "opt_steps": ("updates", figures.count),
    "env_steps": ("env steps", figures.count),
    "duration": ("duration", figures.duration),
    "age": ("age", figures.age),
    "host": ("host", plain),
    "folder": ("run directory", plain),
}
TO_THE_RIGHT = {"job", "seed", "best", "last", "opt_steps", "env_steps", "duration", "age"}
LESS_IMPORTANT = ("host", "env_steps", "last", "duration", "age", "opt_steps", "seed", "env")


def table(rows: Sequence[Row], width: float) -> list[str]:
    """Titles and rows in columns. Within `width` directories are shortened to what is not the same
    in all rows, then columns left out."""
    columns = _columns(rows)
    notes = []
    if _width(columns) > width:
        with suppress(ValueError):  # nothing is common to all
            parent = os.path.commonpath([row.folder.parent for row in rows]) or "."
            columns["folder"][1:] = [os.path.relpath(row.folder, parent) for row in rows]
            notes = [f"run directories are relative to {parent}"]
        swept = {key for row in rows for key in row.swept}  # which goes last
        less = sorted(LESS_IMPORTANT, key=lambda each: each in swept)
        taken = []
        while less and _width(columns) > width:
            taken.append(columns.pop(less.pop(0))[0])
        notes += [f"no room for {', '.join(taken)}"] if taken else []
    aligned = []
    for key, texts in columns.items():
        align = str.rjust if key in TO_THE_RIGHT else str.ljust
        longest = max(map(len, texts))
        aligned.append([align(each, longest) for each in texts])
    return [*("  ".join(line).rstrip() for line in zip(*aligned, strict=True)), *notes]


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Titles and texts; of a sweep also its jobs, and what is swept."""
    found: dict[str, list[str]] = {}
    swept = dict.fromkeys(key for row in rows for key in row.swept if key not in COLUMNS)
    for key, (title, text) in COLUMNS.items():
        for each in swept if key == "best" else ():
            found[each] = [each, *(plain(row.swept.get(each)) for row in rows)]
        found[key] = [title, *(text(row.value(key)) for row in rows)]
    if not any("job" in row.values for row in rows):
        del found["job"]
    return found


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, texts)) + 2 for texts in columns.values()) - 2


def _reasons(rows: Sequence[Row]) -> list[str]:
    """The reasons of jobs of a sweep that failed."""
    lines = [
        f"job {row.value('job')} {row.value('status')}: {row.value('reason') or 'no run.json'}"
        for row in rows
        if "job" in row.values and row.value("status") not in UNREMARKABLE
    ]
    return shortened(lines)


def _numbers(rows: Sequence[Row]) -> str:
    """`12 runs: 10 done, 2 failed`."""
    by_status = Counter(str(row.value("status")) for row in rows)
    each = ", ".join(f"{count:,} {status}" for status, count in by_status.most_common())
    noun = "job" if all("job" in row.values for row in rows) else "run"
    return f"{counted(len(rows), noun)}: {each}"


def _diff(asked: argparse.Namespace) -> None:
    from border_cli.run.finding import find_run

    if len(asked.paths) != 2:
        raise ConfigError(f"diff compares two run directories, got {len(asked.paths)}")
    first, second = (row_of(SavedRun(find_run(each)[0]), time.time()) for each in asked.paths)
    found = differences(first, second)
    if asked.json:
        say(json.dumps({"runs": [str(first.folder), str(second.folder)], **found}))
        return
    say(f"A  {first.folder}\nB  {second.folder}")
    for kind, differing in found.items():
        if differing:
            say(kind)
        for key, values in differing.items():
            text = COLUMNS[key][1] if key in COLUMNS else plain
            before, after = ("null" if value is None else text(value) for value in values)
            say(f"  {key}: {before} -> {after}")
    if not any(found.values()):
        say("nothing differs")


main = partial(plain_command, "border-runs", HELP, _run, default=[str(OUTPUTS)])
command = main  # the console script
