"""The metrics of the updates since the last row, read late and checked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import SupportsFloat

from border_cli.core.errors import NotFinite

LOOK_EVERY = 100  # updates; reading each one at once would make every step wait for the device


class UpdateLog:
    """Keeps what the agent reported, unread, then checks and averages it.

    Owned by the learner's thread. A loss that is not finite is found at most `LOOK_EVERY` updates
    after it happened, always before weights are saved or evaluated, and named with its own step.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, Mapping[str, SupportsFloat]]] = []
        self._read: defaultdict[str, list[float]] = defaultdict(
            list
        )  # name -> values since the last row

    def add(self, opt_steps: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Takes the metrics of update number `opt_steps`."""
        self._unread.append((opt_steps, metrics))
        if len(self._unread) >= LOOK_EVERY:
            self.check()

    def check(self) -> None:
        """Reads all; raises `NotFinite` with the name and step of the first bad quantity."""
        for opt_steps, metrics in self._unread:
            for name, value in metrics.items():
                number = float(value)
                if not math.isfinite(number):
                    raise NotFinite(
                        f"train/{name} is {number} at optimisation step {opt_steps:,}; "
                        "nothing was saved since. A smaller agent.learning_rate or an "
                        "agent.max_grad_norm often helps"
                    )
                self._read[name].append(number)
        self._unread.clear()

    def means(self) -> dict[str, float]:
        """The means since the last call, with `train/` in front."""
        self.check()
        means = {f"train/{name}": fmean(values) for name, values in self._read.items()}
        self._read.clear()
        return means
