"""Whether the targets of C51 fit between its outer atoms."""

from __future__ import annotations

import logging
from collections import deque

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TargetDistribution

log = logging.getLogger(__name__)

CHECKS = 5  # of which a warning is the mean: what an untrained network guesses passes sooner
WARNING_SHARE = 0.25  # of the targets' mass beyond an outer atom
MARGIN = 0.05  # of the range of the atoms: what comes to rest nearer to it counts as within


def mass_beyond(target: TargetDistribution, discount: Tensor, last: float, margin: float) -> Tensor:
    """Of the targets' mass: the share above `last`; the same times how far row by row the last atom
    moves; and times 1 - d. [3], means over rows

    Only rows count which, were all steps like theirs, would move the last atom on and on until it
    rests more than `margin` above: at last + (r + d last - last) / (1 - d).
    """
    way = target.positions.amax(dim=1, keepdim=True) - last  # [B, 1]
    left = 1 - discount  # [B, 1]
    above = torch.where(target.positions > last, target.probabilities, 0).sum(1, keepdim=True)
    counted = above * (way > margin * left)  # [B, 1]
    return torch.stack([counted.mean(), (counted * way).mean(), (counted * left).mean()])


class SupportCheck:
    """Checks whether the targets fit between the outer atoms, and warns once about each atom that
    is too near. The learner's thread owns it.

    C51 moves what lies beyond an outer atom to it. Where that is much, values pile up there,
    and those of good and of better actions become the same.
    """

    def __init__(self, v_min: float, v_max: float) -> None:
        self._ends = {"v_min": v_min, "v_max": v_max}
        self._range = v_max - v_min
        # Of the ends without a warning so far.
        self._checks: dict[str, deque[Tensor]] = {end: deque(maxlen=CHECKS) for end in self._ends}

    def check(self, target: TargetDistribution, discount: Tensor) -> dict[str, Tensor]:
        """The shares of the targets' mass that lie beyond."""
        margin = MARGIN * self._range
        mirrored = target._replace(positions=-target.positions)
        below = mass_beyond(mirrored, discount, -self._ends["v_min"], margin)  # [3]
        above = mass_beyond(target, discount, self._ends["v_max"], margin)  # [3]
        self._warn_if_clipped("v_min", below)
        self._warn_if_clipped("v_max", above)
        return {"beyond_v_min": below[0], "beyond_v_max": above[0]}

    def _warn_if_clipped(self, end: str, beyond: Tensor) -> None:
        checks = self._checks.get(end)
        if checks is None:
            return
        checks.append(beyond)
        share, way, left = torch.stack(list(checks)).mean(0).tolist()
        if len(checks) < CHECKS or share < WARNING_SHARE:
            return
        del self._checks[end]
        # Two digits: it is an estimate by the rewards so far. Without a discount there is none.
        more = float(f"{way / left:.2g}") if left > 0 else self._range
        value = self._ends[end]
        high, side, sign = ("high", "below", -1) if end == "v_min" else ("low", "above", 1)
        log.warning(
            "agent.%s=%g is too %s: %.0f %% of the target probability was %s it and was clipped "
            "to it, so those values cannot be distinguished. In a new run, try agent.%s=%g",
            *(end, value, high, 100 * share, side, end, value + sign * more),
        )
