"""Categorical Q-learning (C51), which learns a distribution of the return on fixed atoms.

Bellemare, Dabney and Munos 2017, "A distributional perspective on reinforcement learning",
Algorithm 1. Double Q-learning as in Hessel et al. 2018, "Rainbow: combining improvements in deep
reinforcement learning".
"""

from __future__ import annotations

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import (
    TargetDistribution,
    TDResult,
    TensorBatch,
    expand_gradient,
    mask_invalid,
    select_action_values,
)


def project(positions: Tensor, probabilities: Tensor, atoms: Tensor) -> Tensor:
    """Projects distributions onto evenly spaced atoms. [B, N], [B, N], [N] -> [B, N]

    Mass between two atoms is split in proportion to its proximity to each, which preserves the
    mean. Mass beyond the outermost atoms is moved to them.
    """
    last = len(atoms) - 1
    spacing = (atoms[-1] - atoms[0]) / last
    index = ((positions - atoms[0]) / spacing).clamp(0, last)  # [B, N]
    below = index.floor()
    upper = probabilities * (index - below)  # mass for the atom above
    lower = below.long()
    projected = torch.zeros_like(probabilities).scatter_add_(1, lower, probabilities - upper)
    # At the last atom there is no atom above. `upper` is 0 there, so clamping is harmless.
    return projected.scatter_add_(1, (lower + 1).clamp_(max=last), upper)


def target_distribution(
    batch: TensorBatch, next_logits: Tensor, next_logits_online: Tensor | None, atoms: Tensor
) -> TargetDistribution:
    """Returns the target distribution of the return of (s, a) before projection. [B, N]

    next_logits, next_logits_online: [B, num_actions, N]
    """
    next_probabilities = next_logits.softmax(2)
    online = next_probabilities if next_logits_online is None else next_logits_online.softmax(2)
    means = mask_invalid(online @ atoms, batch.next_mask)  # [B, num_actions]
    best = means.argmax(dim=1, keepdim=True)  # [B, 1]
    positions = torch.addcmul(batch.reward, batch.discount, atoms)  # [B, N]
    return TargetDistribution(positions, select_action_values(next_probabilities, best))


def td_loss(
    outputs: Tensor,
    next_outputs: Tensor,
    next_outputs_online: Tensor | None,
    batch: TensorBatch,
    *,
    atoms: Tensor,
) -> TDResult:
    """Returns the cross-entropy loss from logits for s and s', [B, num_actions * N] each.

    Its gradient with respect to the logits is p - m. The TD error is KL(m || p), the priority
    used by Rainbow.
    """
    shape = len(outputs), -1, len(atoms)
    logits = outputs.view(shape)
    online = None if next_outputs_online is None else next_outputs_online.view(shape)
    target = target_distribution(batch, next_outputs.view(shape), online, atoms)
    m = project(*target, atoms)  # [B, N]
    log_p = select_action_values(logits, batch.action).log_softmax(1)  # [B, N]
    p = log_p.exp()
    cross_entropy = -(m * log_p).sum(1, keepdim=True)  # [B, 1]
    row_weight = batch.weight / len(outputs)  # [B, 1]
    return TDResult(
        grad_output=expand_gradient(row_weight * (p - m), logits, batch.action).flatten(1),
        td_error=cross_entropy + torch.xlogy(m, m).sum(1, keepdim=True),
        metrics={"loss": torch.sum(row_weight * cross_entropy), "q_mean": (p @ atoms).mean()},
        target=target,
    )
