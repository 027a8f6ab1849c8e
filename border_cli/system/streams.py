"""Handling of standard streams that are closed (cron jobs, daemons) or cannot encode every
character."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Opens the null device for each closed standard stream. Makes stdout write `?` for characters
    that its encoding lacks.

    Must be called before any file is opened. That file would get the descriptor of the closed
    stream, and output of C code would be written into it.
    """
    for descriptor, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the end
            os.set_inheritable(descriptor, True)
    with suppress(AttributeError):  # a replaced stdout may lack `reconfigure`
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Within the block, or a function decorated with it, all that is written to stdout goes to
    stderr: simulators print from Python and from C, and the stdout of a command with --json is one
    object."""
    import ctypes  # imported late: commands that play no environment do not need it

    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # the buffers of C
        os.dup2(stdout, 1)
        os.close(stdout)
