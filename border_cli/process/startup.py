"""The frame of a command, set up before anything large is imported: signals and exit statuses, the
threads of libraries, and Python's garbage collector, which is kept out of its start and its end."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from border_cli.errors import BorderError, Interrupted, reachable
from border_cli.messages import complain
from border_cli.process.signals import EarlySignals, early_signals
from border_cli.system.foreign import keep_written_folders_off_path
from border_cli.system.machine import BLAS_VARIABLES

# How many times an idle torch thread spins before it sleeps. Two threads make 181 updates of SAC a
# second with it, 195 if they always spin, 105 if they sleep immediately (one thread: 155). Where
# other programs need the cores, threads that always spin make 6.
SPINS = "10000"
LENT = (".py", "pyproject.toml", "hydra_plugins")  # ends of names of modules and plug-ins


def set_up_threads() -> None:
    """Must come before numpy and torch are loaded. What the user has set stays.

    BLAS gets one thread per process, because those of actors and learner fight for the cores.
    """
    for variable in BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@contextmanager
def framed(command: str, denied: type[BorderError]) -> Iterator[EarlySignals]:
    """Within the block, a whole command, what is refused or fails ends it with a message and its
    exit status: 2 for what was refused, 1 for what failed, 130 for Ctrl-C and 143 for SIGTERM and
    SIGHUP. What the system denies is a `denied`.
    """
    set_up_threads()
    path = list(sys.path)
    with early_signals() as signals:
        try:
            with reachable(denied):
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
    """Prints why, if the current directory contains modules or plug-ins that are not used."""
    mark = keep_written_folders_off_path()
    if mark and any(path.name.endswith(LENT) for path in Path.cwd().iterdir()):
        complain(
            command,
            f"plug-ins and modules of the current directory are not used: {mark} shows that "
            "border_cli wrote it, perhaps for somebody else",
        )


@contextmanager
def not_collecting() -> Iterator[None]:
    """Nothing is collected within the block until `collect_from_here`.

    What a start imports lasts as long as the process. Going through it, over and over while it is
    imported and once more at the interpreter's end, takes a fifth of the shortest run and finds
    nothing. At the end only cycles stay unfreed: files, threads and atexit are as always.
    """
    gc.disable()
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def collect_from_here() -> None:
    """Everything is imported: collects from now on, and passes over what is there already."""
    gc.freeze()
    gc.enable()
