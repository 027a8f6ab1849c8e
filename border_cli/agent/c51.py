"""Categorical Q-learning (C51), which learns a distribution of the return on fixed atoms.

Bellemare, Dabney and Munos 2017, "A distributional perspective on reinforcement learning",
Algorithm 1. Double Q-learning as in Hessel et al. 2018, "Rainbow: combining improvements in deep
reinforcement learning".
"""

from __future__ import annotations

from border_cli.nn.arrays import (
    AnyTensor,
    add_at,
    argmax,
    expand_gradient,
    library_of,
    log_softmax,
    mask_invalid,
    select_action_values,
    softmax,
)
from border_cli.nn.batch import TargetDistribution, TDResult, TensorBatch


def project(positions: AnyTensor, probabilities: AnyTensor, atoms: AnyTensor) -> AnyTensor:
    """Projects distributions onto evenly spaced atoms. [B, N], [B, N], [N] -> [B, N]

    Mass between two atoms is split in proportion to its proximity to each, which preserves the
    mean. Mass beyond the outermost atoms is moved to them.
    """
    last = len(atoms) - 1
    spacing = (atoms[-1] - atoms[0]) / last
    library = library_of(atoms)
    index = ((positions - atoms[0]) / spacing).clip(0, last)  # [B, N]
    below = library.floor(index)
    upper = probabilities * (index - below)  # mass for the atom above
    lower = library.asarray(below, dtype=library.int64)
    projected = add_at(library.zeros_like(probabilities), lower, probabilities - upper)
    # At the last atom there is no atom above. `upper` is 0 there, so clipping is harmless.
    return add_at(projected, (lower + 1).clip(0, last), upper)


def target_distribution(
    batch: TensorBatch,
    next_logits: AnyTensor,
    next_logits_online: AnyTensor | None,
    atoms: AnyTensor,
) -> TargetDistribution:
    """Returns the target distribution of the return of (s, a) before projection. [B, N]

    next_logits, next_logits_online: [B, num_actions, N]
    """
    next_probabilities = softmax(next_logits, 2)
    online = next_probabilities if next_logits_online is None else softmax(next_logits_online, 2)
    means = mask_invalid(online @ atoms, batch.next_mask)  # [B, num_actions]
    best = argmax(means)  # [B, 1]
    positions = batch.reward + batch.discount * atoms  # [B, N]
    return TargetDistribution(positions, select_action_values(next_probabilities, best))


def td_loss(
    outputs: AnyTensor,
    next_outputs: AnyTensor,
    next_outputs_online: AnyTensor | None,
    batch: TensorBatch,
    *,
    atoms: AnyTensor,
) -> TDResult:
    """Returns the cross-entropy loss from logits for s and s', [B, num_actions * N] each.

    Its gradient with respect to the logits is p - m. The TD error is KL(m || p), the priority
    used by Rainbow.
    """
    shape = len(outputs), -1, len(atoms)
    logits = outputs.reshape(shape)
    online = None if next_outputs_online is None else next_outputs_online.reshape(shape)
    target = target_distribution(batch, next_outputs.reshape(shape), online, atoms)
    m = project(*target, atoms)  # [B, N]
    log_p = log_softmax(select_action_values(logits, batch.action))  # [B, N]
    p = library_of(outputs).exp(log_p)
    cross_entropy = -(m * log_p).sum(1)[:, None]  # [B, 1]
    row_weight = batch.weight / len(outputs)  # [B, 1]
    return TDResult(
        grad_output=expand_gradient(row_weight * (p - m), logits, batch.action).reshape(
            outputs.shape
        ),
        td_error=cross_entropy + _x_log_x(m).sum(1)[:, None],
        metrics={"loss": (row_weight * cross_entropy).sum(), "q_mean": (p @ atoms).mean()},
        target=target,
    )


def _x_log_x(values: AnyTensor) -> AnyTensor:
    """Returns x log x, which is 0 for x = 0."""
    return values * library_of(values).log(values + (values == 0))
