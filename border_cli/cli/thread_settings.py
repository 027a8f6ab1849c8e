"""What the libraries that compute must be told before they are loaded."""

from __future__ import annotations

import os

from border_cli.core.threads import BLAS_VARIABLES


def set_up_threads() -> None:
    """Must come before numpy and torch are loaded. What the user has set stays.

    BLAS gets one thread per process, because those of actors and learner fight for the cores.
    Threads of torch that wait for each other sleep and do not spin: where something else needs a
    core, two that spin make a tenth of the updates of one (6 against 77 a second measured).
    """
    for variable in BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
