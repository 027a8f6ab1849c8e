"""The terminal before, during and after a run: the console, its log, header, tables, last lines.

What users named (paths, runs, messages) is printed as it is: never wrapped, cut or coloured. Only
characters that would steer the terminal are escaped.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from border_cli.core.interfaces import ActorStats
from border_cli.core.words import counted, visible
from border_cli.recorder import figures

LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red"}
SECTION_NAMES = {"wait": "wait for samples", "env_step": "env step"}
COPIED = ("run directory", "next")  # keys whose values users copy
MIN_ROOM = 20  # characters for values; below, lines are not broken between words
MESSAGE = logging.Formatter("%(message)s")


class _Terminal(Console):
    """A console whose reader may go away (`border-train … | head`) without ending the run."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """What others named cannot steer the terminal; rich's own steps are marked by `control`."""
        for each in super().render(renderable, options):
            yield each if each.control else each._replace(text=visible(each.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python flushes stdout once more at its exit, and that must not fail either.
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), self.file.fileno())
        logging.getLogger(__name__).warning("the output was closed; nothing more is printed")


def make_console(*, stderr: bool = False) -> Console:
    """The console on stdout. A live panel needs a terminal there, whatever FORCE_COLOR says."""
    stream = sys.stderr if stderr else sys.stdout
    with suppress(AttributeError):  # the stream may have been replaced by a plain object
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    interactive = None if stream.isatty() else False
    return _Terminal(highlight=False, markup=False, force_interactive=interactive, stderr=stderr)


def make_recording_console(width: int) -> Console:
    """A console that writes to no stream; what it prints is exported as text or HTML."""
    return _Terminal(file=io.StringIO(), width=width, record=True, force_jupyter=False, _environ={})


def say(console: Console, message: str | Text) -> None:
    """Prints one message whole, however narrow the terminal is."""
    text = message if isinstance(message, Text) else Text(message)
    console.print(text, soft_wrap=True, markup=False, highlight=False)


class ConsoleHandler(logging.Handler):
    """Prints log records above a live panel of the same console: `[12:03:44] message`."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(MESSAGE)  # else logging.basicConfig would set one of its own

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self._console, self._text(record))
        except Exception:
            self.handleError(record)  # the standard library's way to report a failing handler

    def _text(self, record: logging.LogRecord) -> Text:
        text = Text(f"[{MESSAGE.formatTime(record, '%H:%M:%S')}] ", style="dim")
        if record.threadName != threading.main_thread().name:
            text.append(f"{record.threadName}: ", style="dim")
        if record.levelname in LEVEL_STYLES:
            text.append(
                f"{record.levelname.lower()}: ", style=f"not dim {LEVEL_STYLES[record.levelname]}"
            )
        return text.append(self.format(record), style="not dim")


def header(console: Console, lines: Sequence[tuple[str, str]]) -> None:
    """Prints keys and values in two columns.

    On a terminal long values break between words, and never inside a path or another word. What
    users copy as a whole, commands and paths, does not break at all.
    """
    width = max((len(key) for key, _ in lines), default=0) + 2
    room = console.width - width if console.is_terminal else 0
    for key, value in lines:
        rows = value.split("\n")
        if room >= MIN_ROOM and key not in COPIED:
            rows = [part for row in rows for part in _wrapped(row, room)]
        text = Text(key.ljust(width), style="dim")
        text.append(("\n" + " " * width).join(rows), style="not dim")
        say(console, text)


def _wrapped(text: str, room: int) -> list[str]:
    wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return wrapped or [""]


def make_table(*figures: str) -> Table:
    """An empty table; its columns are `figures`, and what is added."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in figures:
        table.add_column(name, justify="right")
    return table


def stats_tables(
    console: Console, actor_stats: Sequence[ActorStats], trainer_stats: Mapping[str, float]
) -> None:
    """The statistics of the actors and of the trainer at the end of a run."""
    if actor_stats:
        _actor_table(console, actor_stats)
    trainer = make_table("trainer", *trainer_stats)
    trainer.add_row("", *(_figure(value) for value in trainer_stats.values()))
    console.print(trainer)


def _actor_table(console: Console, actor_stats: Sequence[ActorStats]) -> None:
    names = ("actor", "env steps", "samples", "samples/s", "duration", "restarts", "lost samples")
    actors = make_table(*names)
    for each in actor_stats:
        actors.add_row(
            str(each.actor_id),
            f"{each.env_steps:,}",
            f"{each.samples:,}",
            figures.rate(each.samples_per_sec),
            figures.duration(each.duration_s),
            str(each.restarts),
            f"{each.lost_samples:,}",
        )
    console.print(actors)


def time_tree(
    console: Console,
    learner: Mapping[str, float],
    actors: Mapping[str, float],
    *,
    in_learner_thread: bool,
    concurrent: Mapping[str, float] | None = None,
) -> None:
    """Where the learner's and the actors' time went; both in seconds per section.

    Those of the actors are estimates, so only their shares are shown. `in_learner_thread`: the
    actors step in the learner's thread, which therefore never waits for them. `concurrent`: seconds
    of what other threads did meanwhile, shown as shares of its time.
    """
    table = make_table()
    table.add_column("time", no_wrap=True)
    for name in ("seconds", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    names = SECTION_NAMES | ({"wait": "actors' steps"} if in_learner_thread else {})
    for title, seconds, known in (("learner", learner, True), ("actors", actors, False)):
        total_s = sum(seconds.values())
        if total_s <= 0:  # not measured
            continue
        table.add_row(title, f"{total_s:,.2f}" if known else "", "100 %")
        for section, spent_s in sorted(seconds.items(), key=lambda each: -each[1]):
            if spent_s > 0:
                table.add_row(
                    f"  {names.get(section, section)}",
                    f"{spent_s:,.2f}" if known else "",
                    f"{100 * spent_s / total_s:.1f} %",
                )
    whole_s = sum(learner.values())
    for name, spent_s in (concurrent or {}).items():
        if spent_s > 0 and whole_s > 0:
            table.add_row(name, f"{spent_s:,.2f}", f"{100 * spent_s / whole_s:.1f} %")
    if table.row_count:
        console.print(table)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def closing(
    console: Console,
    run_dir: Path,
    best: tuple[float, int] | None,
    next_commands: Sequence[str],
    *,
    lines: Sequence[tuple[str, str]] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Prints the last lines: warnings, further lines, run directory, score, and what to type next.

    `best` is the score of the best evaluation and the number of updates before it.
    """
    for warning in warnings:
        say(console, Text.assemble(("warning: ", "yellow"), warning))
    at = f"at {counted(best[1], 'update')}" if best else ""
    best_text = f"{figures.score(best[0])} {at}" if best else "no evaluation"
    next_lines = "\n".join(next_commands)
    known = [*lines, ("run directory", str(run_dir)), ("best score", best_text)]
    header(console, [*known, ("next", next_lines)] if next_lines else known)
