"""Metrics of updates, read late; nothing is kept that follows from a NaN or an infinity.

Losses are read every 100 updates and before weights are saved or evaluated, when the weights are
checked too. The first bad quantity is reported with its update.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any, SupportsFloat

from border_cli.core.interfaces import Agent
from border_cli.core.types import State
from border_cli.errors import NotFinite

REMEDY = (
    "nothing has been saved since. A smaller agent.learning_rate or an agent.max_grad_norm often "
    "helps"
)
CHECK_EVERY = 100  # updates; reading each one immediately would make every step wait for the device


class UpdateLog:
    """Keeps what the agent reported, unread, then checks and averages it.

    Owned by the learner's thread. A loss that is not finite is found at most `CHECK_EVERY` updates
    later, always before weights are saved or evaluated, and is named with its own step.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, Mapping[str, SupportsFloat]]] = []  # opt steps, metrics
        # name -> values since the last row
        self._read: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, opt_steps: int, metrics: Mapping[str, SupportsFloat]) -> bool:
        """Takes the metrics of update number `opt_steps`; whether it is time for a `check`."""
        self._unread.append((opt_steps, metrics))
        return len(self._unread) >= CHECK_EVERY

    def check(self) -> None:
        """Reads all; raises `NotFinite` with the name and step of the first bad quantity."""
        for opt_steps, metrics in self._unread:
            for name, value in metrics.items():
                number = float(value)
                if not math.isfinite(number):
                    raise NotFinite(f"train/{name} is {number} at update {opt_steps:,}; {REMEDY}")
                self._read[name].append(number)
        self._unread.clear()

    def means(self) -> dict[str, float]:
        """The means since the last call, with `train/` in front."""
        self.check()
        means = {f"train/{name}": fmean(values) for name, values in self._read.items()}
        self._read.clear()
        return means

    def state_dict(self) -> State:
        """The values that the next row is the mean of."""
        self.check()
        return {name: list(values) for name, values in self._read.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._unread.clear()
        self._read = defaultdict(list, {name: list(values) for name, values in state.items()})


def check_weights(agent: Agent) -> None:
    """Raises `NotFinite` for the first bad weight."""
    bad = agent.first_not_finite()
    if bad is not None:
        raise NotFinite(
            f"{bad} of the agent is not finite after update {agent.opt_steps:,}; {REMEDY}"
        )
