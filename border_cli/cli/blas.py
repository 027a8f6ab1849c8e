"""One BLAS thread per process."""

from __future__ import annotations

import os

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one_thread_for_blas() -> None:
    """Must come before numpy is loaded: BLAS threads of actors and learner fight for the cores.

    What the user has set stays.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, "1")
