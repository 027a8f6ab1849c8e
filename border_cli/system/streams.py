"""Standard streams that are closed when a command starts, as cron jobs and daemons close them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Opens the null device as each standard stream that is closed.

    Comes before any file is opened. That file would get the descriptor of the closed stream, and
    what C code prints would be written into it.
    """
    for descriptor, (name, mode) in enumerate(STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the end
            os.set_inheritable(descriptor, True)
