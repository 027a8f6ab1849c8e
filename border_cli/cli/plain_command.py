"""Shared parts of all commands except border-train: --help and --version, arguments of the form
`RUN_DIR key=value … --flag`, and the run that they name."""

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
from border_cli.process.startup import command_frame
from border_cli.system.files import expand_user
from border_cli.system.streams import prepare_streams
from border_cli.words import shortest, unknown

Reader = Callable[[str, str], Any]  # converts a key and its text to a value


def plain_command(
    name: str,
    help_text: str,
    run: Callable[[Sequence[str], EarlySignals], None],
    argv: Sequence[str] | None = None,
    *,
    default: Sequence[str] = (),
) -> None:
    """Prints the help or the version, or runs the command, see `command_frame`. Without arguments,
    `default` is used."""
    prepare_streams()
    typed = (sys.argv[1:] if argv is None else argv) or default
    if not typed or {"-h", "--help"} & set(typed):
        sys.stdout.write(help_text)
        sys.exit(0 if typed else 2)
    if "--version" in typed:
        sys.stdout.write(f"border_cli {__version__}\n")
        return
    with command_frame(name, CheckpointError) as signals:
        run(typed, signals)


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Within the block a closed pipe, as in `border-runs | head`, ends the output without an
    error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), sys.stdout.fileno())


def read_pairs(
    typed: Sequence[str],
    readers: Mapping[str, Reader],
    path_names: Sequence[str] = ("run directory",),
    *,
    flags: Sequence[str] = ("--json",),
) -> tuple[list[Path], dict[str, Any]]:
    """Returns the paths and the values, which may be typed in any order. Raises ConfigError for an
    unknown flag or option and for a wrong number of paths."""
    folders: list[str] = []
    values: dict[str, Any] = {}
    for word in typed:
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            if word not in flags:
                raise ConfigError(unknown("flag", word, [*flags, "--help", "--version"]))
        elif (
            not equals or "/" in key or Path(word).is_dir()
        ):  # the folder of a sweep job may be called lr=0.1
            folders.append(word)
        elif key not in readers:
            raise ConfigError(unknown("option", key, list(readers)))
        else:
            values[key] = readers[key](key, value)
    if len(folders) != len(path_names):
        raise ConfigError(
            f"give one {' and one '.join(path_names)}, got {len(folders)}: {' '.join(folders)}"
        )
    return [expand_user(word) for word in folders], values


def read_text(_: str, value: str) -> str:
    return value


def read_bool(key: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    return value == "true"


def integer_reader(low: int) -> Reader:
    """Returns a reader of integers that are at least `low`."""

    def read(key: str, value: str) -> int:
        number = value
        if re.fullmatch(r"\d+(\.\d+)?e\d{1,2}", value) and float(value).is_integer():  # 1e3
            number = str(int(float(value)))
        if not number.isdecimal() or int(number) < low:
            raise ConfigError(f"{key} must be an integer of at least {low}, got {value!r}")
        return int(number)

    return read


def locate_run(path: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """Returns the run directory and the checkpoint that a path names, see `find_run`."""
    # imported late: --help does not need it
    from border_cli.run.finding import find_run

    run_dir, checkpoint_name = find_run(path, checkpoint)
    return (run_dir if run_dir == path else shortest(run_dir)), checkpoint_name


def best_or_latest(command: str, run_dir: Path) -> str:
    """Returns "best" if there is a best model. Otherwise prints a message and returns "latest"."""
    from border_cli.run.finding import find_checkpoint

    try:
        find_checkpoint(run_dir, "best")
    except CheckpointError:
        find_checkpoint(run_dir, "latest")
        complain(command, f"{run_dir} has no best model; using the latest")
        return "latest"
    return "best"
