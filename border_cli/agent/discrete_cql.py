"""Conservative Q-learning for discrete actions, as an additional term in the loss of DQN.

Kumar, Zhou, Tucker and Levine 2020, "Conservative Q-learning for offline reinforcement learning",
CQL(H), equation 4, which lowers Q-values of actions that are not in the data. See `cql.py` for
continuous actions. The equation halves the squared TD error, as `loss=huber` does for errors up to
1. `loss=mse` does not halve it, so the same `conservative_weight` has half the relative effect.
"""

from __future__ import annotations

from border_cli.nn.arrays import AnyTensor, logsumexp, mask_invalid, scatter, softmax, take
from border_cli.nn.batch import TDLoss, TDResult, TensorBatch


def conservative_gap(
    q: AnyTensor, action: AnyTensor, weight: AnyTensor, mask: AnyTensor | None = None
) -> tuple[AnyTensor, AnyTensor]:
    """Returns the mean of weight * (logsumexp Q(s, ·) - Q(s, a)) and its gradient w.r.t. Q.

    The logsumexp covers valid actions only. [B, num_actions] -> [], [B, num_actions]
    """
    q = mask_invalid(q, mask)
    row_weight = weight / len(q)  # [B, 1]
    gap = (row_weight * (logsumexp(q) - take(q, action))).sum()
    return gap, row_weight * softmax(q) - scatter(row_weight, action, q)


def td_loss(
    outputs: AnyTensor,
    next_outputs: AnyTensor,
    next_outputs_online: AnyTensor | None,
    batch: TensorBatch,
    *,
    td_loss: TDLoss,
    weight: float,
    atoms: AnyTensor | None,
) -> TDResult:
    """Adds `weight` times the gap to a TD loss. With `atoms`, Q is the mean of a distribution.

    The metric `loss` is the TD loss only; the gradient includes both terms.
    """
    result = td_loss(outputs, next_outputs, next_outputs_online, batch)
    if atoms is None:
        gap, grad = conservative_gap(outputs, batch.action, batch.weight, batch.mask)
    else:
        p = softmax(outputs.reshape(len(outputs), -1, len(atoms)), 2)
        q = p @ atoms  # [B, num_actions]
        gap, grad_q = conservative_gap(q, batch.action, batch.weight, batch.mask)
        grad = (grad_q[:, :, None] * p * (atoms - q[:, :, None])).reshape(outputs.shape)
    return result._replace(
        grad_output=result.grad_output + weight * grad,
        metrics=result.metrics | {"conservative_gap": gap},
    )
