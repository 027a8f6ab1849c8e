"""`border-plot`: curves and final scores of runs over seeds, as a picture, a page, a table, or in
the terminal.
"""

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
from border_cli.words import counted

if TYPE_CHECKING:
    from border_cli.analysis.curves import Report
    from border_cli.analysis.grouping import Reference
    from border_cli.analysis.load import SavedRun

NAME = "border-plot"
HELP = """\
border-plot: plots runs with 95 % intervals over seeds.

  border-plot PATH … [--by KEY,…] [--out FILE] [options]

  PATH                   run directories, or directories with runs below them, such as a sweep;
                         or studies of border-tune: the best score over the steps of all trials, and
                         the importance of hyperparameters
  --by KEY,…             settings that make the groups, such as agent,agent.double; runs of one
                         group are its seeds; default: the settings that differ between the runs
  --out FILE             writes .png, .svg, .pdf (curves) or .html (curves and tables on one page),
                         which need the extra plot, .md (tables) or .csv (see --csv); may be given
                         several times; without it the curves are drawn in the terminal
  --size WIDTHxHEIGHT    of the picture in inches, such as 6x4; .png has 150 dots per inch
  --stat mean|iqm        mean with the interval of Student's t (default), or interquartile mean with
                         that of a stratified bootstrap
  --y METRIC             default: eval/return; docs/metrics.md lists all
  --x env_steps|opt_steps|time_s
                         default: env_steps (opt_steps for offline runs)
  --where CONDITIONS     only runs that meet all of them, such as 'status=done agent=sac'; see
                         border-runs --help
  --failed               also runs that have failed
  --hold                 runs that ended early keep their last value; by default only those do that
                         reached trainer.stop_at_score, and a curve ends with its first other run
  --reference ENV=RANDOM:EXPERT
                         returns that map to normalised scores 0 and 100; default: those of
                         evaluator.ref_min_score and ref_max_score, or of the data set of a run
  --csv curves|scores|improvement|profile
                         the numbers in a .csv file; default: curves
  --version, --help

Examples
  border-plot my_sweep
  border-plot outputs/dqn_cartpole --by agent.double --out curves.png --out report.html
  border-plot my_study --out study.png
  border-plot my_sweep --stat iqm --reference cartpole=22:500 --reference acrobot=-500:-75
"""
DRAWN = (".png", ".svg", ".pdf", ".html")  # by matplotlib
OF_RUNS = ("by", "x", "y", "where", "failed", "reference")  # options that no study has
SUFFIXES = (*DRAWN, ".md", ".csv")
SIZE = re.compile(r"([1-9]\d?(?:\.\d+)?)x([1-9]\d?(?:\.\d+)?)")  # below 100 inches


def read_request(typed: Sequence[str]) -> argparse.Namespace:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
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
            raise ConfigError(f"{flag} is given {flags.count(flag)} times, and takes one value")
    asked = parser.parse_intermixed_args(typed)
    for option, suffixes in (("csv", (".csv",)), ("size", DRAWN)):
        if vars(asked)[option] and not any(each.suffix.lower() in suffixes for each in asked.out):
            raise ConfigError(f"--{option} needs an --out that ends in {' or '.join(suffixes)}")
    return asked


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
    found = SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"--size must be WIDTHxHEIGHT in inches, such as 6x4, got {text!r}")
    return float(found[1]), float(found[2])


def _reference(text: str) -> tuple[str, Reference]:
    env, _, scores = text.rpartition("=")
    low, _, high = scores.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        found = math.nan, math.nan
    if not env or not -math.inf < found[0] < found[1] < math.inf:
        raise ConfigError(
            "--reference must be ENV=RANDOM:EXPERT with two returns, the lower one first, "
            f"got {text!r}"
        )
    return env, found


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    asked = read_request(typed)
    if (asked.paths[0] / STUDY_JSON).is_file():
        _plot_studies(asked)
        return
    # imported late, as all below: numpy, which --help and refusals do not need
    from border_cli.analysis.curves import report
    from border_cli.analysis.grouping import grouped

    references = dict(asked.reference)
    runs, left_out = _runs(asked)
    found = grouped(runs, by=asked.by, x=asked.x, y=asked.y, references=references)
    plotted = report(
        found.curves,
        by=found.by,
        x=found.x,
        y=asked.y,
        stat=asked.stat,
        hold=asked.hold,
        notes=[*left_out, *found.warnings],
    )
    _show(asked, plotted)


def _show(asked: argparse.Namespace, plotted: Report) -> None:
    """Writes the files that are asked for, and prints the rest."""
    from border_cli.cli.plotted import show, write

    for path in asked.out:
        write(path, plotted, asked.csv, asked.size)
    show(plotted, asked.out)
    for each in plotted.warnings:
        complain(NAME, f"warning: {each}")


def _plot_studies(asked: argparse.Namespace) -> None:
    """Plots studies of `border-tune`, refusing what is meant for runs."""
    usual = vars(read_request(["-"]))
    if given := [each for each in OF_RUNS if vars(asked)[each] != usual[each]]:
        raise ConfigError(f"{asked.paths[0]} is a study of border-tune, without --{given[0]}")
    from border_cli.analysis.curves import report
    from border_cli.tune.report import importance, progress
    from border_cli.tune.table import print_best
    from border_cli.tune.trials import read_study, read_trials

    studies = {path: (read_study(path), read_trials(path)) for path in asked.paths}
    units = {study.unit for study, _ in studies.values()}
    if len(units) > 1:
        raise ConfigError("studies in env steps and studies in updates are plotted apart")
    if curves := [each for path, found in studies.items() for each in progress(path, *found)]:
        x, y = units.pop().removeprefix("max_"), "score of the best trial"
        _show(asked, report(curves, by=["study"], x=x, y=y, stat=asked.stat, hold=asked.hold))
    elif asked.out:
        raise ConfigError(f"{asked.paths[0]}: no trial has a score to draw yet")
    for found in studies.values():
        shares = [f"{share:4.0%}  {name}" for name, share in importance(*found).items()]
        print_best(*found, ("importance", "\n".join(shares) or "too few trials"))


def _runs(asked: argparse.Namespace) -> tuple[list[SavedRun], list[str]]:
    """The runs that are drawn, and a line about failed ones that are not."""
    from border_cli.analysis.listing import row_of, where
    from border_cli.analysis.load import load_runs

    rows = where([row_of(run, time.time()) for run in load_runs(*asked.paths)], asked.where)
    if not rows:
        meeting = f" that meet {asked.where}" if asked.where else ""
        raise CheckpointError(f"no runs in {', '.join(map(str, asked.paths))}{meeting}")
    drawn = [row.run for row in rows if asked.failed or row.run.status != "failed"]
    if not drawn:
        raise CheckpointError(f"{counted(len(rows), 'run')}, all failed; --failed shows them")
    failed = counted(len(rows) - len(drawn), "failed run")
    return drawn, [f"{failed} left out; --failed shows them"] if len(drawn) < len(rows) else []


main = partial(plain_command, NAME, HELP, _run)
command = main  # the console script
