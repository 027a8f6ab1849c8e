"""What the libraries that compute must be told before they are loaded."""

from __future__ import annotations

import os

from border_cli.core.threads import BLAS_VARIABLES

# How often a thread of torch that waits for another looks again before it sleeps. Two threads make
# 181 updates of SAC a second with it, 195 if they spin for ever, 105 if they sleep at once (one
# makes 155). But where other programs want the cores those that spin for ever come down to 6.
SPINS = "10000"


def set_up_threads() -> None:
    """Must come before numpy and torch are loaded. What the user has set stays.

    BLAS gets one thread per process, because those of actors and learner fight for the cores.
    """
    for variable in BLAS_VARIABLES:
        os.environ.setdefault(variable, "1")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
