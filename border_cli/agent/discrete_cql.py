"""Conservative Q-learning for Discrete actions: a term beside the TD loss of DQN.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline reinforcement learning",
CQL(H), equation 4: actions in general shall be worth less than those of the data. `cql.py` has it
for continuous actions. The equation has half the square of the TD error, as `loss=huber` up to an
error of 1; `loss=mse` has the whole square, so that a `conservative_weight` counts half as much
beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from border_cli.nn.tensor_batch import TDLoss, TDResult, TensorBatch, masked


def conservative_gap(
    q: Tensor, action: Tensor, weight: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mean of weight * (logsumexp Q(s, ·) - Q(s, a)) over valid actions, its derivative by Q.

    [B, num_actions] -> [], [B, num_actions]
    """
    q = masked(q, mask)
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
    """A TD loss and `weight` times the gap: of Q, or of the means of distributions on `atoms`.

    The metric `loss` is the TD loss alone, the gradient that of both.
    """
    found = td_loss(outputs, next_outputs, next_outputs_online, batch)
    if atoms is None:
        gap, grad = conservative_gap(outputs, batch.action, batch.weight, batch.mask)
    else:
        p = outputs.view(len(outputs), -1, len(atoms)).softmax(2)
        q = p @ atoms  # [B, num_actions]
        gap, grad_q = conservative_gap(q, batch.action, batch.weight, batch.mask)
        grad = (grad_q[:, :, None] * p * (atoms - q[:, :, None])).flatten(1)
    return found._replace(
        grad_output=torch.add(found.grad_output, grad, alpha=weight),
        metrics=found.metrics | {"conservative_gap": gap},
    )
