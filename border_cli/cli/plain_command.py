"""What commands without Hydra have in common: border-eval and border-record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from border_cli import __version__
from border_cli.cli.signals import EarlySignals, leaving_on_signals
from border_cli.cli.thread_settings import set_up_threads
from border_cli.core.errors import BorderError, CheckpointError, Interrupted, reachable
from border_cli.core.foreign import complain
from border_cli.core.machine import memory_for
from border_cli.core.process_state import keeping_everything


def plain_command(
    name: str,
    help_text: str,
    run: Callable[[Sequence[str], EarlySignals], None],
    argv: Sequence[str] | None,
    *,
    interrupted: str = "",
) -> None:
    """Runs the command; status 2 for what was refused, 1 for what failed, 130 for Ctrl-C and 143
    for SIGTERM and SIGHUP. `interrupted` is said after the last three.
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
    with leaving_on_signals() as signals, keeping_everything():
        try:
            with reachable(CheckpointError), memory_for("out of memory", {}):
                run(typed, signals)
        except (KeyboardInterrupt, Interrupted):
            if interrupted:
                complain(name, interrupted)
            sys.exit(signals.exit_status)
        except BorderError as error:
            complain(name, error)
            sys.exit(error.exit_status)
        finally:
            sys.path[:] = path  # without the folders of the run's own modules
