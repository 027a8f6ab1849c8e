"""How a greedy action follows from what a network puts out; imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GreedyForm:
    """`values`: the action of the highest one; with `atoms`, of the highest mean of distributions
    over them. `logits`: the most likely choice of each component. `tanh`: the first A outputs, from
    -1 … 1 to the bounds of the action.
    """

    kind: str
    atoms: tuple[float, float, int] | None = None  # v_min, v_max and their number
