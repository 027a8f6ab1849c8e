"""What the evaluations said so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from border_cli.core.types import State


@dataclass(slots=True)
class Scores:
    """Best and last score; owned by the learner's thread."""

    best: float = -math.inf
    best_opt_steps: int | None = None
    last: float | None = None
    last_opt_steps: int | None = None
    evaluations: int = 0
    in_a_row: int = 0  # newest evaluations that reached the threshold

    def add(self, score: float, opt_steps: int, threshold: float | None) -> bool:
        """Takes a score; whether it is strictly the best so far (a tie keeps the older)."""
        self.evaluations += 1
        self.last, self.last_opt_steps = score, opt_steps
        reached = threshold is not None and score >= threshold
        self.in_a_row = self.in_a_row + 1 if reached else 0
        if score > self.best:
            self.best, self.best_opt_steps = score, opt_steps
            return True
        return False

    def state_dict(self) -> State:
        """All of it; no best score is None."""
        return asdict(self) | {"best": self.best if math.isfinite(self.best) else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, value)
        self.best = -math.inf if state["best"] is None else float(state["best"])

    def know_best(self, score: float, opt_steps: int) -> None:
        """There is a saved best model that is better than what was known."""
        if score > self.best:
            self.best, self.best_opt_steps = score, opt_steps
