"""Standard streams of a command: closed ones, as of cron jobs and daemons, and those of terminals
that cannot write every character."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Opens the null device as each standard stream that is closed, and has `?` written for what
    the encoding of stdout lacks.

    Comes before any file is opened. That file would get the descriptor of the closed stream, and
    what C code prints would be written into it.
    """
    for descriptor, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the end
            os.set_inheritable(descriptor, True)
    with suppress(AttributeError):  # it may be a plain object
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
