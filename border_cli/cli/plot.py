"""`border-plot`: curves and final scores of runs over seeds, as a picture, a page, a table, or in
the terminal.

What --help and refusals do not need (numpy, rich, matplotlib) is imported by the functions that
read the runs and plot them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.cli.plain_command import Parser, plain_command
from border_cli.core.errors import CheckpointError, ConfigError, MissingPackage
from border_cli.core.messages import complain
from border_cli.core.words import counted
from border_cli.launch.signals import EarlySignals

if TYPE_CHECKING:
    from border_cli.analysis.grouping import Reference
    from border_cli.analysis.load import Run

NAME = "border-plot"
HELP = """\
border-plot: plots runs with 95 % intervals over seeds.

  border-plot PATH … [--by KEY,…] [--out FILE] [options]

  PATH                   run directories, or directories with runs below them, such as a sweep
  --by KEY,…             settings that make the groups, such as agent,agent.double; runs of one
                         group are its seeds; default: the settings that differ between the runs
  --out FILE             writes .png, .svg (curves) or .html (curves and tables on one page), which
                         need the extra plot, .md (tables) or .csv (see --csv); may be given several
                         times; without it the curves are drawn in the terminal
  --stat mean|iqm        mean with the interval of Student's t (default), or interquartile mean with
                         that of a stratified bootstrap
  --y METRIC             default: eval/return; docs/metrics.md lists all
  --x env_steps|opt_steps|time_s
                         default: env_steps (opt_steps for offline runs)
  --where CONDITIONS     only runs that meet all of them, such as 'status=done agent=sac'; see
                         border-runs --help
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
  border-plot my_sweep --stat iqm --reference cartpole=22:500 --reference acrobot=-500:-75
"""
DRAWN = (".png", ".svg", ".html")  # by matplotlib
SUFFIXES = (*DRAWN, ".md", ".csv")
SCORE = "eval/return"
EXTRA = "border-cli[plot]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, checked as far as it can be without the runs."""

    paths: list[Path]
    by: list[str]
    out: list[Path]
    stat: str
    x: str | None
    y: str
    where: str
    hold: bool
    reference: list[tuple[str, Reference]]
    csv: str | None


def command() -> None:
    """The console script."""
    main()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; see `plain_command`."""
    plain_command(NAME, HELP, _run, argv)


def read_request(typed: Sequence[str]) -> Request:
    """Reads the arguments in any order; raises ConfigError naming what is not understood."""
    parser = Parser(NAME)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--by", action="extend", type=_keys, default=[])
    parser.add_argument("--out", action="append", type=_checked_out, default=[])
    parser.add_argument("--stat", choices=("mean", "iqm"), default="mean")
    parser.add_argument("--x", choices=("env_steps", "opt_steps", "time_s"))
    parser.add_argument("--y", default=SCORE)
    parser.add_argument("--where", default="")
    parser.add_argument("--hold", action="store_true")
    parser.add_argument("--reference", action="append", type=_reference, default=[])
    parser.add_argument("--csv", choices=("curves", "scores", "improvement", "profile"))
    request = Request(**vars(parser.parse_intermixed_args(typed)))
    if request.csv and not any(each.suffix.lower() == ".csv" for each in request.out):
        raise ConfigError("--csv needs an --out that ends in .csv")
    if request.reference and request.y != SCORE:
        raise ConfigError(f"--reference applies to --y {SCORE}, not to {request.y}")
    return request


def _keys(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]


def _checked_out(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out must end in one of {', '.join(SUFFIXES)}, got {text!r}")
    if path.is_dir():
        raise ConfigError(f"--out {text} is a directory")
    return path


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
    request = read_request(typed)
    _plot(request, _runs(request))


def _runs(request: Request) -> list[Run]:
    from border_cli.analysis.listing import row_of, where
    from border_cli.analysis.load import load_runs

    runs = load_runs(*request.paths)
    if not runs:
        raise CheckpointError(f"no runs in {', '.join(map(str, request.paths))}")
    if not request.where:
        return list(runs)
    rows = where([row_of(run, time.time()) for run in runs], request.where)
    if not rows:
        raise CheckpointError(f"none of {counted(len(runs), 'run')} meets {request.where}")
    return [row.run for row in rows if row.run is not None]


def _plot(request: Request, runs: Sequence[Run]) -> None:
    from border_cli.analysis.curves import report
    from border_cli.analysis.grouping import grouped
    from border_cli.cli.plotted import show, write

    found = grouped(
        runs, by=request.by, x=request.x, y=request.y, references=dict(request.reference)
    )
    plotted = report(
        found.curves,
        by=found.by,
        x=found.x,
        y=request.y,
        stat=request.stat,
        hold=request.hold,
        notes=found.warnings,
    )
    if request.csv == "improvement" and not plotted.improvements:
        raise ConfigError("--csv improvement needs two groups on one environment; see --by")
    if request.csv == "profile" and not plotted.profiles:
        raise ConfigError(
            "--csv profile needs normalised scores on several environments; see --reference"
        )
    drawn = [path for path in request.out if path.suffix.lower() in DRAWN]
    missing = drawn if find_spec("matplotlib") is None else []
    written = [path for path in request.out if path not in missing]
    for path in written:
        write(path, plotted, request.csv)
    show(plotted, curves=not written, files=written)
    for each in plotted.warnings:
        complain(NAME, f"warning: {each}")
    if missing:
        raise MissingPackage(f"--out {missing[0]}", EXTRA)
