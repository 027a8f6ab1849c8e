"""A check that the outermost atoms of C51 enclose the targets."""

from __future__ import annotations

import logging
from collections import deque

from border_cli.nn.arrays import AnyTensor, library_of
from border_cli.nn.batch import TargetDistribution

log = logging.getLogger(__name__)

CHECKS = 5  # number of checks averaged, to ignore the first guesses of an untrained network
WARNING_SHARE = 0.25  # fraction of the targets' mass beyond an atom that triggers a warning
MARGIN = 0.05  # tolerated distance beyond an atom, as a fraction of the range of the atoms


def mass_beyond(
    target: TargetDistribution, discount: AnyTensor, last: float, margin: float
) -> AnyTensor:
    """Returns means over rows of the mass above `last`, mass * excess, and mass * (1 - d). [3]

    A row moves the last atom by excess = r + d last - last. If all steps were like this row, the
    atom would converge to last + excess / (1 - d). Only rows with a limit > last + margin count.
    """
    library = library_of(discount)
    excess = library.amax(target.positions, 1)[:, None] - last  # [B, 1]
    decay = 1 - discount  # [B, 1]
    mass = (target.probabilities * (target.positions > last)).sum(1)[:, None]  # [B, 1]
    counted_mass = mass * (excess > margin * decay)  # [B, 1]
    return library.stack(
        [counted_mass.mean(), (counted_mass * excess).mean(), (counted_mass * decay).mean()]
    )


class SupportCheck:
    """Checks whether the targets lie between the outermost atoms, and warns once per atom if they
    do not. Owned by the learner thread.

    C51 moves mass beyond the outermost atoms to them. If there is much of it, the values of good
    actions and of better ones can no longer be distinguished.
    """

    def __init__(self, v_min: float, v_max: float) -> None:
        self._ends = {"v_min": v_min, "v_max": v_max}
        self._range = v_max - v_min
        # Recent results for the ends that have not caused a warning yet.
        self._checks: dict[str, deque[AnyTensor]] = {
            end: deque(maxlen=CHECKS) for end in self._ends
        }

    def check(self, target: TargetDistribution, discount: AnyTensor) -> dict[str, AnyTensor]:
        """Returns the fractions of the targets' mass that `mass_beyond` counts, for both ends."""
        margin = MARGIN * self._range
        mirrored = target._replace(positions=-target.positions)
        below = mass_beyond(mirrored, discount, -self._ends["v_min"], margin)  # [3]
        above = mass_beyond(target, discount, self._ends["v_max"], margin)  # [3]
        self._warn_if_clipped("v_min", below)
        self._warn_if_clipped("v_max", above)
        return {"beyond_v_min": below[0], "beyond_v_max": above[0]}

    def _warn_if_clipped(self, end: str, beyond: AnyTensor) -> None:
        checks = self._checks.get(end)
        if checks is None:
            return
        checks.append(beyond)
        fraction, excess, decay = library_of(beyond).stack(list(checks)).mean(0).tolist()
        if len(checks) < CHECKS or fraction < WARNING_SHARE:
            return
        del self._checks[end]
        # An estimate from recent rewards, hence two digits. With d = 1 there is no estimate.
        extension = float(f"{excess / decay:.2g}") if decay > 0 else self._range
        value = self._ends[end]
        high, side, sign = ("high", "below", -1) if end == "v_min" else ("low", "above", 1)
        log.warning(
            "agent.%s=%g is too %s: %.0f %% of the target probability was %s it and was clipped "
            "to it, so those values cannot be distinguished. In a new run, try agent.%s=%g",
            *(end, value, high, 100 * fraction, side, end, value + sign * extension),
        )
