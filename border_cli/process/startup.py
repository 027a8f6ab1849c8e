"""Setup of a command before large imports: signals, exit statuses, threads, garbage collection."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from border_cli.errors import BorderError, Interrupted, os_errors_as
from border_cli.messages import complain
from border_cli.process.signals import EarlySignals, early_signals
from border_cli.system.foreign import keep_written_folders_off_path
from border_cli.system.machine import BLAS_VARIABLES

# How many times an idle torch thread spins before it sleeps. With this value, two threads run 181
# SAC updates per second; 195 if they always spin, 105 if they sleep immediately (one thread: 155).
# If other programs compete for the cores, threads that always spin run only 6.
SPINS = "10000"
IMPORTABLE = (".py", "pyproject.toml", "hydra_plugins")  # name endings of modules and plug-ins


def set_up_threads() -> None:
    """Limits BLAS threads and the spinning of torch threads. Must be called before numpy and torch
    are loaded. Environment variables set by the user take precedence.

    BLAS gets one thread per process, because those of actors and learner would compete for the
    cores.
    """
    for variable in BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@contextmanager
def command_frame(command: str, denied: type[BorderError]) -> Iterator[EarlySignals]:
    """Within the block, which is a whole command, errors are printed and end the command with exit
    status 2 if it was refused, 1 if it failed, 130 for Ctrl-C, and 143 for SIGTERM and SIGHUP. An
    `OSError` with a path is raised as `denied`."""
    set_up_threads()
    path = list(sys.path)
    with early_signals() as signals:
        try:
            with os_errors_as(denied):
                _keep_written_folders_off_path(command)
                yield signals
        except (KeyboardInterrupt, Interrupted):
            complain(command, "interrupted")
            sys.exit(signals.exit_status)
        except BorderError as error:
            complain(command, error)
            sys.exit(error.exit_status)
        finally:
            sys.path[:] = path


def _keep_written_folders_off_path(command: str) -> None:
    """Removes folders that border_cli wrote from `sys.path`. Prints a message if the current
    directory is one of them and contains modules or plug-ins, which are then not used."""
    mark = keep_written_folders_off_path()
    if mark and any(path.name.endswith(IMPORTABLE) for path in Path.cwd().iterdir()):
        complain(
            command,
            f"plug-ins and modules of the current directory are not used: {mark} shows that "
            "border_cli wrote it, perhaps for somebody else",
        )


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Disables garbage collection within the block, until `resume_garbage_collection` is called.

    What a command imports lives as long as the process. Scanning these objects repeatedly during
    imports and once more at exit takes a fifth of the shortest run and frees nothing. At exit only
    cycles stay unfreed; files, threads and atexit handlers are cleaned up as usual. What a caller
    has exempted from collection before the block stays exempt after it.
    """
    exempt = gc.get_freeze_count()
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        if not exempt:
            gc.unfreeze()
        gc.enable()


def resume_garbage_collection() -> None:
    """Enables garbage collection after the imports, and exempts existing objects from it, unless a
    caller has exempted its own."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.enable()
