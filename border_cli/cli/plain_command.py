"""What all commands but border-train share: --help and, of border-eval and border-record, their
arguments (`RUN_DIR key=value … --flag`) and the run that these name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from border_cli import __version__
from border_cli.errors import CheckpointError, ConfigError
from border_cli.messages import complain
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import framed
from border_cli.system.files import expanded
from border_cli.system.streams import prepare_streams
from border_cli.words import shortest, unknown

MOST_LISTED = 10
Reader = Callable[[str, str], Any]  # from a key and what is typed behind it to its value


def plain_command(
    name: str,
    help_text: str,
    run: Callable[[Sequence[str], EarlySignals], None],
    argv: Sequence[str] | None = None,
    *,
    default: Sequence[str] = (),
) -> None:
    """Answers --help and --version, or runs the command, see `framed`; `default` is meant where
    nothing is typed."""
    prepare_streams()
    typed = (sys.argv[1:] if argv is None else argv) or default
    if not typed or {"-h", "--help"} & set(typed):
        sys.stdout.write(help_text)
        sys.exit(0 if typed else 2)
    if "--version" in typed:
        sys.stdout.write(f"border_cli {__version__}\n")
        return
    with framed(name, CheckpointError) as signals:
        run(typed, signals)


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Within the block a reader that has left, as in `border-runs | head`, ends the output."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), sys.stdout.fileno())


def shortened(lines: list[str]) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - MOST_LISTED
    return lines if more <= 0 else [*lines[:MOST_LISTED], f"… and {more:,} more"]


def read_pairs(
    typed: Sequence[str],
    readers: Mapping[str, Reader],
    places: Sequence[str] = ("run directory",),
    *,
    flags: Sequence[str] = ("--json",),
) -> tuple[list[Path], dict[str, Any]]:
    """These places and the values, in any order; raises ConfigError naming what is not
    understood."""
    folders: list[str] = []
    values: dict[str, Any] = {}
    for each in typed:
        key, equals, value = each.partition("=")
        if each.startswith("-"):
            if each not in flags:
                raise ConfigError(unknown("flag", each, [*flags, "--help", "--version"]))
        elif not equals or "/" in key or Path(each).is_dir():  # of a job of a sweep: lr=0.1
            folders.append(each)
        elif key not in readers:
            raise ConfigError(unknown("option", key, list(readers)))
        else:
            values[key] = readers[key](key, value)
    if len(folders) != len(places):
        raise ConfigError(
            f"give one {' and one '.join(places)}, got {len(folders)}: {' '.join(folders)}"
        )
    return [expanded(each) for each in folders], values


def text(_: str, value: str) -> str:
    return value


def truth(key: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    return value == "true"


def whole(low: int) -> Reader:
    """Reads integers of at least `low`."""

    def read(key: str, value: str) -> int:
        number = value
        if re.fullmatch(r"\d+(\.\d+)?e\d{1,2}", value) and float(value).is_integer():  # 1e3
            number = str(int(float(value)))
        if not number.isdecimal() or int(number) < low:
            raise ConfigError(f"{key} must be an integer of at least {low}, got {value!r}")
        return int(number)

    return read


def located(place: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """The run directory and the checkpoint that are typed, see `find_run`."""
    # imported late: --help does not need it
    from border_cli.run.finding import find_run

    run_dir, which = find_run(place, checkpoint)
    return (run_dir if run_dir == place else shortest(run_dir)), which


def best_or_latest(command: str, run_dir: Path) -> str:
    """The best model, or the latest, with a message, where there is no best one yet."""
    from border_cli.run.finding import find_checkpoint

    try:
        find_checkpoint(run_dir, "best")
    except CheckpointError:
        find_checkpoint(run_dir, "latest")
        complain(command, f"{run_dir} has no best model; taking the latest")
        return "latest"
    return "best"
