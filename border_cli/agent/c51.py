"""Categorical Q-learning (C51): a distribution of the return on fixed atoms, and whether it fits.

Bellemare, Dabney and Munos 2017, "A distributional perspective on reinforcement learning",
Algorithm 1. Double as in Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement
learning".
"""

from __future__ import annotations

import logging
from collections import deque

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import (
    TargetDistribution,
    TDResult,
    TensorBatch,
    action_index,
    conservative_gap,
    of_action,
)

log = logging.getLogger(__name__)

CHECKS = 5  # of which a warning is the mean: what an untrained network guesses passes sooner
WARNING_SHARE = 0.25  # of the targets' mass beyond an outer atom
MARGIN = 0.05  # of the range of the atoms: what comes to rest nearer to it counts as within


def project(positions: Tensor, probabilities: Tensor, atoms: Tensor) -> Tensor:
    """The distribution on evenly spaced atoms that is nearest in mean. [B, N]

    Mass that stands between two atoms is shared by both in proportion to its nearness, and mass
    beyond the outer ones is theirs. positions, probabilities [B, N], atoms [N].
    """
    last = len(atoms) - 1
    spacing = (atoms[-1] - atoms[0]) / last
    index = ((positions - atoms[0]) / spacing).clamp(0, last)  # [B, N]
    below = index.floor()
    upper = probabilities * (index - below)  # what the atom above gets
    lower = below.long()
    projected = torch.zeros_like(probabilities).scatter_add_(1, lower, probabilities - upper)
    # Where nothing is left for an atom above, there need not be one.
    return projected.scatter_add_(1, (lower + 1).clamp_(max=last), upper)


def target_distribution(
    batch: TensorBatch, next_logits: Tensor, next_logits_online: Tensor | None, atoms: Tensor
) -> TargetDistribution:
    """What the distribution of the return of (s, a) should have been, on no atoms yet. [B, N]

    next_logits, next_logits_online: [B, num_actions, N]
    """
    next_probabilities = next_logits.softmax(2)
    online = next_probabilities if next_logits_online is None else next_logits_online.softmax(2)
    best = (online @ atoms).argmax(dim=1, keepdim=True)  # [B, 1]
    positions = torch.addcmul(batch.reward, batch.discount, atoms)  # [B, N]
    return TargetDistribution(positions, of_action(next_probabilities, best))


def td_loss(
    outputs: Tensor,
    next_outputs: Tensor,
    next_outputs_online: Tensor | None,
    batch: TensorBatch,
    *,
    atoms: Tensor,
    conservative_weight: float = 0.0,
) -> TDResult:
    """The loss of logits for s, given those of s'; all [B, num_actions * N].

    The loss is the cross-entropy, whose derivative by logits is p - m; the error is the divergence
    KL(m || p), by which Rainbow prioritises rows.
    """
    shape = len(outputs), -1, len(atoms)
    logits = outputs.view(shape)
    online = None if next_outputs_online is None else next_outputs_online.view(shape)
    target = target_distribution(batch, next_outputs.view(shape), online, atoms)
    m = project(*target, atoms)  # [B, N]
    log_p = of_action(logits, batch.action).log_softmax(1)  # [B, N]
    p = log_p.exp()
    cross_entropy = -(m * log_p).sum(1, keepdim=True)  # [B, 1]
    row_weight = batch.weight / len(outputs)  # [B, 1]
    grad = torch.zeros_like(logits)
    grad.scatter_(1, action_index(batch.action, logits.shape[2]), (row_weight * (p - m))[:, None])
    gap = None
    if conservative_weight:
        gap, grad_gap = _conservative_gap(logits, batch, atoms)
        grad = torch.add(grad, grad_gap, alpha=conservative_weight)
    return TDResult(
        grad_output=grad.flatten(1),
        loss=torch.sum(row_weight * cross_entropy),
        q_mean=(p @ atoms).mean(),
        td_error=cross_entropy + torch.xlogy(m, m).sum(1, keepdim=True),
        conservative_gap=gap,
        target=target,
    )


def _conservative_gap(logits: Tensor, batch: TensorBatch, atoms: Tensor) -> tuple[Tensor, Tensor]:
    """That of the means, and its derivative by logits. [], [B, num_actions, N]"""
    p = logits.softmax(2)
    q = p @ atoms  # [B, num_actions]
    gap, grad_q = conservative_gap(q, batch.action, batch.weight)
    return gap, grad_q[:, :, None] * p * (atoms - q[:, :, None])


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

    `project` moves what lies beyond an outer atom to it. Where that is much, values pile up there,
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
