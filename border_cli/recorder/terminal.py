"""Output on the terminal: the console, log lines, the header and tables.

Text from users (paths, run names, messages) is printed verbatim: never wrapped, cut or coloured.
Only control characters are escaped.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from border_cli.core.interfaces import ActorStats
from border_cli.recorder import figures
from border_cli.words import escape_controls, mask_secrets

LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red"}
SECTION_NAMES = {"wait": "receive samples", "env_step": "env step"}


class MaskedFormatter(logging.Formatter):
    """Formats log records and masks passwords."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


MESSAGE = MaskedFormatter("%(message)s")


class _Terminal(Console):
    """A console whose output may be closed (`border-train … | head`) without ending the run."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Escapes control characters, except in segments that rich marks as `control`."""
        for segment in super().render(renderable, options):
            yield (
                segment if segment.control else segment._replace(text=escape_controls(segment.text))
            )

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        logging.getLogger(__name__).warning("the output was closed; nothing more is printed")


def make_console(*, stderr: bool = False) -> Console:
    """Creates the console for stdout or stderr.

    A live panel requires a terminal, regardless of FORCE_COLOR; a notebook gets plain lines.
    """
    stream = sys.stderr if stderr else sys.stdout
    with suppress(AttributeError):  # the stream may be closed or a plain object
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    return _Terminal(
        highlight=False,
        markup=False,
        force_interactive=None if stream and stream.isatty() else False,
        force_jupyter=False,
        stderr=stderr,
    )


def say(console: Console, message: str | Text) -> None:
    """Prints a message in full, however narrow the terminal is."""
    text = message if isinstance(message, Text) else Text(message)
    console.print(text, soft_wrap=True)


class ConsoleHandler(logging.Handler):
    """Prints log records above a live panel of the same console: `[12:03:44] message`."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(MESSAGE)  # otherwise logging.basicConfig would set its own

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(self._console, self._text(record))
        except Exception:
            self.handleError(record)  # the standard library's way to report a failing handler

    def _text(self, record: logging.LogRecord) -> Text:
        level = record.levelname
        text = Text.assemble((f"[{MESSAGE.formatTime(record, '%H:%M:%S')}] ", "dim"))
        if record.threadName != threading.main_thread().name:
            text.append(f"{record.threadName}: ", style="dim")
        if level in LEVEL_STYLES:
            text.append(f"{level.lower()}: ", style=LEVEL_STYLES[level])
        return text.append(self.format(record))


def header(console: Console, lines: Sequence[tuple[str, str]]) -> None:
    """Prints keys and values in two columns; the terminal wraps long values."""
    width = max(len(key) for key, _ in lines) + 2
    for key, value in lines:
        indented = value.replace("\n", "\n" + " " * width)
        say(console, Text.assemble((key.ljust(width), "dim"), indented))


def make_table(*figures: str) -> Table:
    """Creates an empty table with a right-aligned column for each figure."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name in figures:
        table.add_column(name, justify="right")
    return table


def stats_tables(
    console: Console, actor_stats: Sequence[ActorStats], trainer_stats: Mapping[str, float]
) -> None:
    """Prints the statistics of the actors and the trainer at the end of a run."""
    if actor_stats:
        names = ("env steps", "samples", "samples/s", "duration", "restarts", "lost samples")
        actors = make_table("actor", *names)
        for actor in actor_stats:
            actors.add_row(
                str(actor.actor_id),
                f"{actor.env_steps:,}",
                f"{actor.samples:,}",
                figures.rate(actor.samples_per_sec),
                figures.duration(actor.duration_s),
                str(actor.restarts),
                f"{actor.lost_samples:,}",
            )
        console.print(actors)
    trainer = make_table("trainer", *trainer_stats)
    trainer.add_row("", *(_figure(value) for value in trainer_stats.values()))
    console.print(trainer)


def time_tree(
    console: Console,
    learner: Mapping[str, float],
    actors: Mapping[str, float],
    concurrent: Mapping[str, float],
) -> None:
    """Prints the seconds per section, also as a percentage of the actors' or learner's time.

    `concurrent` contains the work of other threads while the learner worked.
    """
    learner_s = sum(learner.values())
    if learner_s <= 0:
        return
    table = make_table("seconds", "share")
    table.add_column("time", no_wrap=True)
    groups = (
        ("learner", learner, learner_s),
        ("actors", actors, sum(actors.values())),
        ("meanwhile", concurrent, learner_s),
    )
    for title, seconds, whole_s in groups:
        for name, spent_s in sorted(seconds.items(), key=lambda item: -item[1]):
            if spent_s > 0:
                label = f"{title}: {SECTION_NAMES.get(name, name)}"
                table.add_row(f"{spent_s:,.2f}", f"{100 * spent_s / whole_s:.1f} %", label)
    console.print(table)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
