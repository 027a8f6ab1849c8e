"""The formula of categorical Q-learning (C51): a distribution of the return on fixed atoms.

Bellemare, Dabney and Munos 2017, "A distributional perspective on reinforcement learning",
Algorithm 1. With `chooser` as in Hessel et al. 2018, "Rainbow: combining improvements in deep
reinforcement learning". Changes nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from border_cli.agent.descent import Found, index_of, of_action
from border_cli.agent.q_learning import conservative
from border_cli.nn.tensor_batch import TensorBatch


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


def categorical_target(
    batch: TensorBatch, next_logits: Tensor, chooser: Tensor | None, atoms: Tensor
) -> Tensor:
    """What the distribution of the return of (s, a) should have been. [B, N]

    next_logits, chooser: [B, num_actions, N]
    """
    next_probabilities = next_logits.softmax(2)
    chosen_by = next_probabilities if chooser is None else chooser.softmax(2)
    best = (chosen_by @ atoms).argmax(dim=1, keepdim=True)  # [B, 1]
    positions = torch.addcmul(batch.reward, batch.discount, atoms)  # [B, N]
    return project(positions, of_action(next_probabilities, best), atoms)


def learned(
    outputs: Tensor,
    next_outputs: Tensor,
    chooser: Tensor | None,
    batch: TensorBatch,
    *,
    atoms: Tensor,
    conservative_weight: float = 0.0,
) -> Found:
    """What a batch says about logits. outputs, next_outputs, chooser [B, num_actions * N]

    The loss is the cross-entropy, whose derivative by logits is p - m; the error is the divergence
    KL(m || p), by which Rainbow prioritises rows.
    """
    shape = len(outputs), -1, len(atoms)
    logits = outputs.view(shape)
    chooser = None if chooser is None else chooser.view(shape)
    m = categorical_target(batch, next_outputs.view(shape), chooser, atoms)  # [B, N]
    log_p = of_action(logits, batch.action).log_softmax(1)  # [B, N]
    p = log_p.exp()
    cross_entropy = -(m * log_p).sum(1, keepdim=True)  # [B, 1]
    share = batch.weight / len(outputs)  # [B, 1]
    slope = torch.zeros_like(logits)
    slope.scatter_(1, index_of(batch.action, logits.shape[2]), (share * (p - m))[:, None])
    gap = None
    if conservative_weight:
        gap, by_logits = _conservative(logits, batch, atoms)
        slope = torch.add(slope, by_logits, alpha=conservative_weight)
    return Found(
        slope=slope.flatten(1),
        loss=torch.sum(share * cross_entropy),
        q_mean=(p @ atoms).mean(),
        error=cross_entropy + torch.xlogy(m, m).sum(1, keepdim=True),
        gap=gap,
    )


def _conservative(logits: Tensor, batch: TensorBatch, atoms: Tensor) -> tuple[Tensor, Tensor]:
    """That of the means, and its derivative by logits. [], [B, num_actions, N]"""
    p = logits.softmax(2)
    q = p @ atoms  # [B, num_actions]
    gap, by_q = conservative(q, batch.action, batch.weight)
    return gap, by_q[:, :, None] * p * (atoms - q[:, :, None])
