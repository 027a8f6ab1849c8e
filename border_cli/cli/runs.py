"""`border-runs`: lists runs, compares two, and removes what is no longer needed.

What a list does not need, such as the removal with numpy, is imported by what answers otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.cells import cell_len

from border_cli.analysis.difference import differences
from border_cli.analysis.listing import SPANS, Row, ordered, row_of, row_of_job, where
from border_cli.analysis.load import Run, find_runs, is_run
from border_cli.cli.plain_command import Parser, plain_command, until_nobody_reads
from border_cli.core.errors import ConfigError
from border_cli.core.files import SWEEP_JSON, finite
from border_cli.core.messages import say
from border_cli.core.words import counted, visible
from border_cli.launch.signals import EarlySignals
from border_cli.launch.startup import not_collecting
from border_cli.recorder import figures
from border_cli.run.sweep_folder import job_rows, read_sweep

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

UNREMARKABLE = ("done", "running", "not started")  # statuses that need no reason
MOST_LISTED = 10


def command() -> None:
    """The console script."""
    main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    typed = list(sys.argv[1:] if argv is None else argv)
    plain_command("border-runs", HELP, _run, typed or [str(OUTPUTS)])


def _run(typed: Sequence[str], signals: EarlySignals) -> None:
    del signals  # nothing here takes long
    chosen = typed[0] if typed[0] in ("diff", "rm", "prune") else None
    parser = Parser("border-runs")
    parser.add_argument("paths", nargs="*", type=Path)
    if chosen in (None, "diff"):
        parser.add_argument("--json", action="store_true")
    if chosen != "diff":
        parser.add_argument("--where", default="")
    if chosen is None:
        parser.add_argument("--sort")
    if chosen in ("rm", "prune"):
        parser.add_argument("--yes", action="store_true")
    if chosen == "prune":
        parser.add_argument("--keep", default="1")
    asked = parser.parse_intermixed_args(list(typed[1:] if chosen else typed))
    with until_nobody_reads(), not_collecting():  # ten thousand runs: a fifth of the time
        _answer(chosen, asked)


def _answer(chosen: str | None, asked: argparse.Namespace) -> None:
    if chosen is None:
        _list(asked)
    elif chosen == "diff":
        _diff(asked)
    else:
        from border_cli.cli.removing import prune_runs, remove_runs

        if not asked.paths:
            raise ConfigError(f"{chosen}: name run directories, or directories with runs below")
        rows = where(rows_of(asked.paths), asked.where)
        runs = [row.run for row in rows if row.run is not None]
        if chosen == "rm":
            remove_runs(runs, asked.paths, agreed=asked.yes)
        else:
            prune_runs(runs, keep=asked.keep, agreed=asked.yes)


def _list(asked: argparse.Namespace) -> None:
    paths = asked.paths or [OUTPUTS]
    rows = rows_of(paths)
    found = where(rows, asked.where)
    if asked.sort:
        found = ordered(found, asked.sort)
    if asked.json:
        _print_json(found)
    elif not rows:
        from border_cli.run.finding import run_around

        around = run_around(paths[0]) if len(paths) == 1 else ""
        say(f"no runs in {', '.join(map(str, paths))}{around}")
    elif not found:
        say(f"none of {counted(len(rows), 'run')} meets {asked.where}")
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
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
    rows = {os.path.realpath(each): row_of(Run(each), now_s) for each in find_runs(existing)}
    sweeps = [root for root in existing if (root / SWEEP_JSON).is_file()]
    jobs = [row for root in sweeps for row in _jobs(root, rows)]
    rest = [(str(row.value("started") or ""), place) for place, row in rows.items()]
    return [*jobs, *(rows[place] for _, place in sorted(rest, reverse=True))]


def _jobs(root: Path, rows: dict[str, Row]) -> list[Row]:
    """The jobs of a sweep, out of `rows` where they have a run there."""
    plan = read_sweep(root)
    if plan is None:
        return []
    found = []
    for job in sorted(plan.jobs, key=lambda each: each.number):
        row = rows.pop(os.path.realpath(root / job.folder), None)
        if row is None:
            row = row_of_job(job_rows(root, replace(plan, jobs=[job]))[0])
        swept = {key: job.values.get(key) for key in plan.swept}
        found.append(replace(row, job=job.number, swept=swept))
    return found


def _print_json(rows: Sequence[Row]) -> None:
    """One list, an object on each line."""
    listed = ",\n".join(_json(document(row)) for row in rows)
    sys.stdout.write(f"[{listed}]\n")


def _json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:  # numbers that JSON does not know, in a run.json that none of ours wrote
        return json.dumps(finite(value), allow_nan=False)


def document(row: Row) -> dict[str, Any]:
    """A run as JSON: the values of the list and all settings."""
    return {
        **({} if row.job is None else {"job": row.job}),
        **{f"{key}_s" if key in SPANS else key: value for key, value in row.values.items()},
        "settings": dict(row.settings),
    }


# Their keys, titles and texts, in the order of the table; numbers are set to the right.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "status": ("status", str),
    "agent": ("agent", str),
    "env": ("env", str),
    "seed": ("seed", str),
    "best": ("best", figures.score),
    "last": ("last", figures.score),
    "opt_steps": ("updates", figures.count),
    "env_steps": ("env steps", figures.count),
    "duration": ("duration", figures.duration),
    "age": ("age", figures.age),
    "host": ("host", str),
    "folder": ("run directory", str),
}
TO_THE_LEFT = ("status", "agent", "env", "host", "folder")
LESS_IMPORTANT = ("host", "env_steps", "last", "duration", "age", "opt_steps", "seed", "env")


def table(rows: Sequence[Row], width: int | None) -> list[str]:
    """Titles and rows in columns. Within `width` directories are shortened to what is not the same
    in all rows, then columns left out; None: there is room for all."""
    columns = _columns(rows)
    notes = []
    if width is not None and _width(columns) > width:
        parent = _parent([row.folder for row in rows])
        if parent:
            relative = [os.path.relpath(row.folder, parent) for row in rows]
            columns["folder"] = [columns["folder"][0], *relative]
            notes = [f"run directories are relative to {parent}"]
        hidden = _narrowed(columns, width, {key for row in rows for key in row.swept})
        notes += [f"no room for {', '.join(hidden)}"] if hidden else []
    padded = [_padded(key, each) for key, each in columns.items()]
    return [*("  ".join(line).rstrip() for line in zip(*padded, strict=True)), *notes]


def _parent(folders: Sequence[Path]) -> str:
    """The directory that all lie in; empty where there is none to name."""
    if len({folder.is_absolute() for folder in folders}) > 1:
        return ""
    return os.path.commonpath([folder.parent for folder in folders])


def _narrowed(columns: dict[str, list[str]], width: int, swept: Collection[str]) -> list[str]:
    """Takes columns out until the others fit, what is swept last; their titles."""
    taken = []
    for key in sorted(LESS_IMPORTANT, key=lambda each: each in swept):
        if _width(columns) <= width:
            break
        taken.append(columns.pop(key)[0])
    return taken


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Titles and texts; of a sweep also its jobs, and what is swept."""
    found: dict[str, list[str]] = {}
    if any(row.job is not None for row in rows):
        found["job"] = ["job", *(_text(row.job, str) for row in rows)]
    swept = dict.fromkeys(key for row in rows for key in row.swept if key not in COLUMNS)
    for key, (title, text) in COLUMNS.items():
        if key == "best":
            for each in swept:
                found[f"swept {each}"] = [each, *(_text(row.swept.get(each), str) for row in rows)]
        found[key] = [title, *(_text(row.value(key), text) for row in rows)]
    return found


def _text(value: Any, text: Callable[[Any], str]) -> str:
    return figures.UNKNOWN if value is None else text(value)


def _width(texts: Mapping[str, list[str]]) -> int:
    return sum(max(map(cells, each)) + 2 for each in texts.values()) - 2


def _padded(key: str, texts: list[str]) -> list[str]:
    width = max(map(cells, texts))
    if key in TO_THE_LEFT or key.startswith("swept "):
        return [each + " " * (width - cells(each)) for each in texts]
    return [" " * (width - cells(each)) + each for each in texts]


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Why jobs of a sweep failed."""
    failed = [
        row for row in rows if row.job is not None and row.value("status") not in UNREMARKABLE
    ]
    lines = [f"job {row.job} {row.value('status')}: {row.value('reason')}" for row in failed]
    more = [f"… and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else []
    return lines[:MOST_LISTED] + more


def _numbers(rows: Sequence[Row]) -> str:
    """`12 runs: 10 done, 2 failed`."""
    by_status = Counter(str(row.value("status")) for row in rows)
    each = ", ".join(f"{count:,} {status}" for status, count in by_status.most_common())
    noun = "job" if all(row.job is not None for row in rows) else "run"
    return f"{counted(len(rows), noun)}: {each}"


def _diff(asked: argparse.Namespace) -> None:
    if len(asked.paths) != 2:
        raise ConfigError(f"diff compares two run directories, got {len(asked.paths)}")
    first, second = (row_of(Run(_one_run(each)), time.time()) for each in asked.paths)
    found = differences(first, second)
    if asked.json:
        pair = [str(first.folder), str(second.folder)]
        sys.stdout.write(_json({"runs": pair, **found}) + "\n")
        return
    say(f"A  {first.folder}\nB  {second.folder}")
    for kind, differing in found.items():
        if differing:
            say(kind)
        for key, values in differing.items():
            before, after = (_shown(kind, key, value) for value in values)
            say(f"  {key}: {before} -> {after}")
    if not any(found.values()):
        say("nothing differs")


def _shown(kind: str, key: str, value: Any) -> str:
    if kind == "results" and key in COLUMNS and value is not None:
        return COLUMNS[key][1](value)
    return value if isinstance(value, str) else json.dumps(value)


def _one_run(path: Path) -> Path:
    """Raises `CheckpointError` with what there is where a path is no run directory."""
    if is_run(path):
        return path
    from border_cli.run.finding import find_run

    return find_run(path)[0]


if __name__ == "__main__":
    command()
