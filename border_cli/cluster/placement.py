"""Which node takes the next actor; pure, from what nodes have and what an actor needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from border_cli.core.config import Placement

Amounts = Mapping[str, float]  # of resources by name: CPU, memory (bytes), custom ones

UNLIMITED = 1_000_000  # actors that fit where they ask for nothing
_ROUNDING = 1e-6  # Ray counts in steps of 1e-4


@dataclass(slots=True)
class Node:
    """A node as far as placing is concerned; all actors need the same."""

    node_id: str
    name: str
    total: Amounts
    available: Amounts  # when this was last asked
    placed: int = 0  # actors of ours
    unseen: int = 0  # those of them that were placed since `available` was asked

    def room(self, need: Amounts) -> int:
        """Actors that fit besides those of ours."""
        free = fitting(self.available, need) - self.unseen
        return max(0, min(free, fitting(self.total, need) - self.placed))


def fitting(amounts: Amounts, need: Amounts) -> int:
    """How often `need` is contained in `amounts`."""
    asked = {name: amount for name, amount in need.items() if amount > 0}
    times = (amounts.get(name, 0.0) / each for name, each in asked.items())
    return min((math.floor(each + _ROUNDING) for each in times), default=UNLIMITED)


def choose(
    nodes: Iterable[Node], need: Amounts, placement: Placement, avoid: str | None = None
) -> Node | None:
    """The node for one more actor; None where none has room.

    The node with the id `avoid`, where an actor failed, is taken only if no other has room.
    """
    free = [each for each in nodes if each.room(need) > 0]
    free = [each for each in free if each.node_id != avoid] or free
    sign = 1 if placement is Placement.spread else -1
    return min(
        free,
        key=lambda each: (sign * each.placed, -sign * each.room(need), each.node_id),
        default=None,
    )


def lacking(totals: Iterable[Amounts], need: Amounts) -> list[str]:
    """The resources that no node has."""
    known = {name for each in totals for name, amount in each.items() if amount > 0}
    return [name for name, amount in need.items() if amount > 0 and name not in known]


def in_words(amounts: Amounts) -> str:
    """`4 CPU, 2 GiB memory`."""
    parts = []
    for name, amount in amounts.items():
        if name.endswith("memory"):
            parts.append(f"{amount / 2**30:.3g} GiB {name}")
        else:
            parts.append(f"{amount:g} {name}")
    return ", ".join(parts) or "nothing"
