"""`border-plot`: learning curves and final scores of runs over seeds, as a picture, a page, a table
or in the terminal."""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.cli.flags import Parser
from border_cli.cli.plain_command import plain_command
from border_cli.errors import CheckpointError, ConfigError, MissingPackage
from border_cli.messages import complain
from border_cli.process.signals import EarlySignals
from border_cli.system.files import STUDY_JSON
from border_cli.words import pluralize

if TYPE_CHECKING:
    from border_cli.analysis.curves import Report
    from border_cli.analysis.grouping import Reference
    from border_cli.analysis.load import SavedRun

NAME = "border-plot"
HELP = """\
border-plot: plots runs with 95 % intervals over seeds.

  border-plot PATH … [--by KEY,…] [--out FILE] [options]

  PATH                   run directories, or directories that contain runs, such as a sweep; or
                         studies of border-tune: best score over the steps of all trials, and
                         importance of hyperparameters
  --by KEY,…             settings to group by, such as agent,agent.double; the runs of a group
                         are its seeds; default: the settings that differ between the runs
  --out FILE             writes .png, .svg, .pdf (curves), .html (curves and tables on one page),
                         .md (tables) or .csv (see --csv); all but .md and .csv need
                         pip install "border-cli[plot]". May be given several times; without it
                         the curves are drawn in the terminal
  --size WIDTHxHEIGHT    size of the picture in inches, such as 6x4, at least 2x2 and below 100x100;
                         .png has 150 dots per inch
  --stat mean|iqm        mean with Student's t interval (default), or interquartile mean with a
                         stratified bootstrap interval
  --y METRIC             metric; default: eval/return; docs/reference/metrics.md lists all
  --x env_steps|opt_steps|time_s
                         x axis; default: env_steps (opt_steps for offline runs)
  --where CONDITIONS     only runs that meet all conditions, such as 'status=done agent=sac';
                         see border-runs --help
  --failed               includes failed runs
  --hold                 extends all runs that ended early by their last value; by default, only
                         those that reached trainer.stop_at_score are extended, and a curve ends
                         with the shortest of its other runs
  --reference ENV=RANDOM:EXPERT
                         returns that map to normalised scores 0 and 100; default:
                         evaluator.ref_min_score and ref_max_score, or those of the run's data set
  --csv curves|scores|improvement|profile
                         content of a .csv file; default: curves
  --version, --help

Examples
  border-plot my_sweep
  border-plot outputs/dqn_cartpole --by agent.double --out curves.png --out report.html
  border-plot my_study --out study.png
  border-plot my_sweep --stat iqm --reference cartpole=22:500 --reference acrobot=-500:-75
"""
DRAWN = (".png", ".svg", ".pdf", ".html")  # formats drawn by matplotlib
NOT_FOR_STUDIES = ("by", "x", "y", "where", "failed", "reference")  # options
SUFFIXES = (*DRAWN, ".md", ".csv")
SIZE = re.compile(r"([1-9]\d?(?:\.\d+)?)x([1-9]\d?(?:\.\d+)?)")  # sides below 100 inches


def parse_arguments(typed: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments, in any order. Raises ConfigError if they are invalid."""
    parser = Parser(NAME)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--by", action="extend", type=_keys, default=[])
    parser.add_argument("--out", action="append", type=_checked_out, default=[])
    parser.add_argument("--size", type=_size)
    parser.add_argument("--stat", choices=("mean", "iqm"), default="mean")
    parser.add_argument("--x", choices=("env_steps", "opt_steps", "time_s"))
    parser.add_argument("--y", default="eval/return")
    parser.add_argument("--where", default="")
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--reference", action="append", type=_reference, default=[])
    parser.add_argument("--csv", choices=("curves", "scores", "improvement", "profile"))
    flags = [word.partition("=")[0] for word in typed]
    for flag in ("--size", "--stat", "--x", "--y", "--where", "--csv"):
        if flags.count(flag) > 1:
            raise ConfigError(f"{flag} is given {flags.count(flag)} times, but takes one value")
    request = parser.parse_intermixed_args(typed)
    for option, suffixes in (("csv", (".csv",)), ("size", DRAWN)):
        if vars(request)[option] and not any(
            path.suffix.lower() in suffixes for path in request.out
        ):
            raise ConfigError(f"--{option} needs an --out that ends in {' or '.join(suffixes)}")
    return request


def _keys(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]


def _checked_out(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out must end in one of {', '.join(SUFFIXES)}, got {text!r}")
    if path.suffix.lower() in DRAWN and find_spec("matplotlib") is None:
        raise MissingPackage(f"--out {text}", "border-cli[plot]")
    return path


def _size(text: str) -> tuple[float, float]:
    match = SIZE.fullmatch(text)
    if match is None:
        raise ConfigError(f"--size must be WIDTHxHEIGHT in inches, such as 6x4, got {text!r}")
    return float(match[1]), float(match[2])


def _reference(text: str) -> tuple[str, Reference]:
    env, _, scores = text.rpartition("=")
    low, _, high = scores.partition(":")
    try:
        returns = float(low), float(high)
    except ValueError:
        returns = math.nan, math.nan
    if not env or not -math.inf < returns[0] < returns[1] < math.inf:
        raise ConfigError(
            "--reference must be ENV=RANDOM:EXPERT with two returns, the lower one first, "
            f"got {text!r}"
        )
    return env, returns


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    request = parse_arguments(typed)
    if (request.paths[0] / STUDY_JSON).is_file():
        _plot_studies(request)
        return
    # imported late, as all below: numpy, which --help and invalid arguments do not need
    from border_cli.analysis.curves import report
    from border_cli.analysis.grouping import group_runs

    references = dict(request.reference)
    runs, left_out = _runs(request)
    groups = group_runs(runs, by=request.by, x=request.x, y=request.y, references=references)
    plot = report(
        groups.curves,
        by=groups.by,
        x=groups.x,
        y=request.y,
        stat=request.stat,
        hold=request.hold,
        notes=[*left_out, *groups.warnings],
    )
    _show(request, plot)


def _show(request: argparse.Namespace, plot: Report) -> None:
    """Writes the requested files and prints the report."""
    from border_cli.cli.plot_output import show, write

    for path in request.out:
        write(path, plot, request.csv, request.size)
    show(plot, request.out)
    for warning in plot.warnings:
        complain(NAME, f"warning: {warning}")


def _plot_studies(request: argparse.Namespace) -> None:
    """Plots studies of `border-tune`. Raises ConfigError for options that apply only to runs."""
    defaults = vars(parse_arguments(["-"]))
    if options := [key for key in NOT_FOR_STUDIES if vars(request)[key] != defaults[key]]:
        raise ConfigError(f"{request.paths[0]} is a study of border-tune: leave out --{options[0]}")
    from border_cli.analysis.curves import report
    from border_cli.tune.report import importance, progress
    from border_cli.tune.table import print_best
    from border_cli.tune.trials import read_study, read_trials

    studies = {path: (read_study(path), read_trials(path)) for path in request.paths}
    units = {settings.unit for settings, _ in studies.values()}
    if len(units) > 1:
        raise ConfigError("studies in env steps and studies in updates need separate plots")
    if curves := [curve for path, study in studies.items() for curve in progress(path, *study)]:
        x, y = units.pop().removeprefix("max_"), "score of the best trial"
        _show(request, report(curves, by=["study"], x=x, y=y, stat=request.stat, hold=request.hold))
    elif request.out:
        raise ConfigError(f"{request.paths[0]}: no trial has a score to draw yet")
    for study in studies.values():
        lines = [f"{share:4.0%}  {name}" for name, share in importance(*study).items()]
        print_best(*study, ("importance", "\n".join(lines) or "too few trials"))


def _runs(request: argparse.Namespace) -> tuple[list[SavedRun], list[str]]:
    """Returns the runs to draw and a note about failed runs that are left out."""
    from border_cli.analysis.listing import filter_rows, row_of
    from border_cli.analysis.load import load_runs

    rows = filter_rows(
        [row_of(run, time.time()) for run in load_runs(*request.paths)], request.where
    )
    if not rows:
        condition = f" that meet {request.where}" if request.where else ""
        raise CheckpointError(f"no runs in {', '.join(map(str, request.paths))}{condition}")
    drawn = [row.run for row in rows if request.failed or row.run.status != "failed"]
    if not drawn:
        raise CheckpointError(f"{pluralize(len(rows), 'run')}, all failed; --failed shows them")
    failed = pluralize(len(rows) - len(drawn), "failed run")
    return drawn, [f"{failed} left out; --failed shows them"] if len(drawn) < len(rows) else []


main = partial(plain_command, NAME, HELP, _run)
command = main  # entry point of the console script
