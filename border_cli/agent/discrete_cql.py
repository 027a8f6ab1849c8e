"""Conservative Q-learning for discrete actions, as an additional term in the loss of DQN.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline reinforcement learning",
CQL(H), equation 4, which lowers Q-values of actions that are not in the data. See `cql.py` for
continuous actions. The equation halves the squared TD error, as `loss=huber` does for errors up to
1. `loss=mse` does not halve it, so the same `conservative_weight` has half the relative effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TDLoss, TDResult, TensorBatch, mask_invalid


def conservative_gap(
    q: Tensor, action: Tensor, weight: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the mean of weight * (logsumexp Q(s, ·) - Q(s, a)) and its gradient w.r.t. Q.

    The logsumexp covers valid actions only. [B, num_actions] -> [], [B, num_actions]
    """
    q = mask_invalid(q, mask)
    row_weight = weight / len(q)  # [B, 1]
    gap = torch.sum(row_weight * (q.logsumexp(1, keepdim=True) - q.gather(1, action)))
    return gap, (row_weight * q.softmax(1)).scatter_add_(1, action, -row_weight)


def td_loss(
    outputs: Tensor,
    next_outputs: Tensor,
    next_outputs_online: Tensor | None,
    batch: TensorBatch,
    *,
    td_loss: TDLoss,
    weight: float,
    atoms: Tensor | None,
) -> TDResult:
    """Adds `weight` times the gap to a TD loss. With `atoms`, Q is the mean of a distribution.

    The metric `loss` is the TD loss only; the gradient includes both terms.
    """
    result = td_loss(outputs, next_outputs, next_outputs_online, batch)
    if atoms is None:
        gap, grad = conservative_gap(outputs, batch.action, batch.weight, batch.mask)
    else:
        p = outputs.view(len(outputs), -1, len(atoms)).softmax(2)
        q = p @ atoms  # [B, num_actions]
        gap, grad_q = conservative_gap(q, batch.action, batch.weight, batch.mask)
        grad = (grad_q[:, :, None] * p * (atoms - q[:, :, None])).flatten(1)
    return result._replace(
        grad_output=torch.add(result.grad_output, grad, alpha=weight),
        metrics=result.metrics | {"conservative_gap": gap},
    )
