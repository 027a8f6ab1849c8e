"""One BLAS thread per process."""

from __future__ import annotations

import os

from border_cli.core.threads import BLAS_VARIABLES


def one_thread_for_blas() -> None:
    """Must come before numpy is loaded: BLAS threads of actors and learner fight for the cores.

    What the user has set stays.
    """
    for variable in BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
