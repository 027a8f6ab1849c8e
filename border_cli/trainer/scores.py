"""What the evaluations said so far."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
