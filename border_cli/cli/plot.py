"""`border-plot`: curves and final scores of runs over seeds, as a picture, a page, a table, or in
the terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.cli.plain_command import Parser, plain_command, until_nobody_reads
from border_cli.core.errors import CheckpointError, ConfigError, MissingPackage, RunFailed
from border_cli.core.messages import complain
from border_cli.core.words import counted
from border_cli.launch.signals import EarlySignals

if TYPE_CHECKING:
    from rich.console import Console

    from border_cli.analysis.curves import Report
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
NAME_CHARACTERS = 20  # of a name in a narrow terminal
BETWEEN = 3  # characters between two columns
MOST_PAIRS = 10  # probabilities of improvement in the terminal
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
    report = _report(request)
    if request.csv == "improvement" and not report.improvements:
        raise ConfigError("--csv improvement needs two groups on one environment; see --by")
    if request.csv == "profile" and not report.profiles:
        raise ConfigError(
            "--csv profile needs normalised scores on several environments; see --reference"
        )
    drawn = [path for path in request.out if path.suffix.lower() in DRAWN]
    missing = drawn if find_spec("matplotlib") is None else []
    written = [path for path in request.out if path not in missing]
    for path in written:
        _write(path, report, request.csv)
    _show(report, curves=not written, files=written)
    for each in report.warnings:
        complain(NAME, f"warning: {each}")
    if missing:
        raise MissingPackage(f"--out {missing[0]}", EXTRA)


def _report(request: Request) -> Report:
    from border_cli.analysis.curves import report
    from border_cli.analysis.grouping import grouped

    runs = _runs(request)
    found = grouped(
        runs, by=request.by, x=request.x, y=request.y, references=dict(request.reference)
    )
    return report(
        found.curves,
        by=found.by,
        x=found.x,
        y=request.y,
        stat=request.stat,
        hold=request.hold,
        notes=found.warnings,
    )


def _runs(request: Request) -> list[Run]:
    from border_cli.analysis.listing import row_of, where
    from border_cli.analysis.load import load_runs

    runs = load_runs(request.paths)
    if not runs:
        raise CheckpointError(f"no runs in {', '.join(map(str, request.paths))}")
    if not request.where:
        return list(runs)
    rows = where([row_of(run, time.time()) for run in runs], request.where)
    if not rows:
        raise CheckpointError(f"none of {counted(len(runs), 'run')} meets {request.where}")
    return [row.run for row in rows if row.run is not None]


def _write(path: Path, report: Report, table: str | None) -> None:
    from border_cli.core.files import write_bytes

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, _content(path.suffix.lower(), report, table))
    except OSError as error:
        raise RunFailed(f"{path} could not be written: {error.strerror}") from error


def _content(suffix: str, report: Report, table: str | None) -> bytes:
    from border_cli.analysis import tables

    if suffix == ".html":
        from border_cli.analysis.page import page

        return page(report).encode()
    if suffix in DRAWN:
        from border_cli.analysis.drawing import drawn

        return drawn(report, suffix[1:])
    if suffix == ".md":
        return tables.markdown(report).encode()
    made: dict[str, Callable[[Report], str]] = {
        "curves": tables.curves_csv,
        "scores": tables.scores_csv,
        "improvement": tables.improvement_csv,
        "profile": tables.profile_csv,
    }
    return made[table or "curves"](report).encode()


def _show(report: Report, *, curves: bool, files: Sequence[Path]) -> None:
    """The curves where no file has them, the tables, and the files that were written."""
    from border_cli.recorder.terminal import make_console

    console = make_console()
    with console.capture() as printed:
        if curves:
            _show_curves(console, report)
        _show_tables(console, report)
        for path in files:
            console.print(f"wrote {path}", soft_wrap=True)
    with until_nobody_reads():
        sys.stdout.write(printed.get())


def _show_tables(console: Console, report: Report) -> None:
    from border_cli.analysis.tables import METHODS, final_table, improvement_table

    head, rows = final_table(report)
    show_table(console, head, rows, names=head.index("seeds"))
    console.print(f"final {report.y_name}: {METHODS[report.stat]}\n", style="dim", soft_wrap=True)
    if report.improvements:
        head, rows = improvement_table(report)
        show_table(console, head, rows[:MOST_PAIRS], names=2)
        left = len(rows) - MOST_PAIRS
        more = f"; {left} more in .md, .html and .csv files" if left > 0 else ""
        console.print(f"probability of improvement{more}\n", style="dim", soft_wrap=True)


def _show_curves(console: Console, report: Report) -> None:
    from rich.text import Text

    from border_cli.analysis.chart import LINE, chart, color, mark

    groups, colored = report.groups, console.color_system is not None
    for panel in report.panels:
        console.print(f"{panel.env}: {report.y_name}", style="bold", soft_wrap=True)
        drawn = chart(panel, groups, report.x_name, width=console.width, colored=colored)
        console.print(Text.from_ansi(drawn), soft_wrap=True)
    console.print(", ".join(report.by), style="dim", soft_wrap=True)
    for number, group in enumerate(groups):
        sign = mark(number, len(groups), colored=colored).replace(LINE, "──")
        console.print(f"{sign}  {group}", style=color(number), soft_wrap=True)
    console.print()


def show_table(
    console: Console, head: Sequence[str], rows: Sequence[Sequence[str]], *, names: int
) -> None:
    """The first columns are `names`, which break where the terminal is narrow; figures never do."""
    from border_cli.recorder.terminal import make_table

    longest = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    least = [min(each, NAME_CHARACTERS) for each in longest[:names]] + longest[names:]
    table = make_table()
    for name, width in zip(head, least, strict=True):
        table.add_column(name, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*row)
    needed = sum(least if console.is_terminal else longest) + BETWEEN * (len(head) + 1)
    console.width = max(console.width, needed)
    console.print(table)
