"""How many samples an optimisation step needs, and how far actors may run ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Ties samples to optimisation steps, so that learning does not depend on the machine's speed.

    Update k + 1 needs `warmup_period + k * ratio` samples in all; actors may make up to `slack`
    more. A ratio of None lets each go as fast as it can after the warm-up.
    """

    warmup_period: int
    ratio: float | None
    slack: (
        int  # samples; at least one burst of the gate, else learner and actors wait for each other
    )
    max_env_steps: int | None = None
    refill: int = 0  # samples that had to be made once more, because a resume found no rows

    def refilled(self, opt_steps: int, samples_total: int) -> Pacing:
        """The same for a replay buffer that is empty again: it is filled as in the warm-up."""
        missing = samples_total + self.warmup_period - self.needed(opt_steps)
        return replace(self, refill=self.refill + max(0, math.ceil(missing)))

    def needed(self, opt_steps: int) -> float:
        """How many samples there must be in all for the next optimisation step."""
        ratio = self.ratio if self.ratio is not None else 0.0
        due = self.warmup_period + opt_steps * ratio + self.refill
        return due if due > 1 else 1.0

    def permitted(self, opt_steps: int) -> float:
        """How many samples may exist in all once so many optimisation steps are made."""
        ahead = math.inf
        if self.ratio is not None:
            ahead = self.warmup_period + opt_steps * self.ratio + self.slack + self.refill
        limit = self.max_env_steps
        return ahead if limit is None or ahead < limit else float(limit)
