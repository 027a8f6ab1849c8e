"""What all commands but border-train have in common: exit statuses and, of border-eval and
border-record, how they are typed (`RUN_DIR key=value … --flag`) and which run that names.

What finds a run is imported by the functions that look for it: no --help waits for it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from border_cli import __version__
from border_cli.core.errors import (
    BorderError,
    CheckpointError,
    ConfigError,
    Interrupted,
    reachable,
)
from border_cli.core.foreign import keep_runs_off_path
from border_cli.core.machine import memory_for
from border_cli.core.messages import complain
from border_cli.core.words import shortest, unknown
from border_cli.launch.signals import EarlySignals, early_signals
from border_cli.launch.startup import set_up_threads

FLAGS = ("--json",)


class Parser(argparse.ArgumentParser):
    """Refuses as the other commands do, with status 2."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} ({self.prog} --help lists the flags)")


def plain_command(
    name: str,
    help_text: str,
    run: Callable[[Sequence[str], EarlySignals], None],
    argv: Sequence[str] | None,
    *,
    interrupted: str = "",
) -> None:
    """Runs the command; status 2 for what was refused, 1 for what failed, 130 for Ctrl-C and 143
    for SIGTERM and SIGHUP. `interrupted` is printed after an interruption.
    """
    typed = list(sys.argv[1:] if argv is None else argv)
    if not typed or {"-h", "--help"} & set(typed):
        sys.stdout.write(help_text)
        sys.exit(0 if typed else 2)
    if "--version" in typed:
        sys.stdout.write(f"border_cli {__version__}\n")
        return
    set_up_threads()
    path = list(sys.path)
    with early_signals() as signals:
        try:
            with reachable(CheckpointError), memory_for("out of memory", {}):
                keep_runs_off_path()
                run(typed, signals)
        except (KeyboardInterrupt, Interrupted):
            if interrupted:
                complain(name, interrupted)
            sys.exit(signals.exit_status)
        except BorderError as error:
            complain(name, error)
            sys.exit(error.exit_status)
        finally:
            sys.path[:] = path


@contextmanager
def until_nobody_reads() -> Iterator[None]:
    """Within the block a reader that has left, as in `border-runs | head`, ends the output."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with Path(os.devnull).open("wb") as devnull:
            os.dup2(devnull.fileno(), sys.stdout.fileno())


def read_pairs(typed: Sequence[str], keys: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The run directory and the values, in any order; raises ConfigError naming what is not
    understood."""
    folders = [each for each in typed if _is_folder(each)]
    for each in (each for each in typed if each.startswith("-") and each not in FLAGS):
        raise ConfigError(unknown("flag", each, [*FLAGS, "--help", "--version"]))
    if len(folders) != 1:
        raise ConfigError(f"give one run directory, got {len(folders)}: {' '.join(folders)}")
    values: dict[str, str] = {}
    for each in typed:
        key, _, value = each.partition("=")
        if each in folders or each.startswith("-"):
            continue
        if key not in keys:
            raise ConfigError(unknown("option", key, keys))
        values[key] = value
    return Path(folders[0]), values


def _is_folder(word: str) -> bool:
    """Whether it names the run; folders of a sweep have `=` in their names."""
    key, equals, _ = word.partition("=")
    return not word.startswith("-") and (not equals or "/" in key or Path(word).is_dir())


def whole_number(values: dict[str, str], key: str, low: int) -> int | None:
    """A number of at least `low`; None where it was not given."""
    if key not in values:
        return None
    try:
        number = int(values[key])
    except ValueError:
        number = low - 1
    if number < low:
        raise ConfigError(f"{key} must be an integer of at least {low}, got {values[key]!r}")
    return number


def truth(values: dict[str, str], key: str) -> bool:
    """Whether it was given as true; false where it was not given."""
    value = values.get(key, "false")
    if value not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {value!r}")
    return value == "true"


def located(place: Path, checkpoint: str | None = None) -> tuple[Path, str | None]:
    """The run directory and the checkpoint that are typed, see `find_run`."""
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
