"""Which node takes the next actor."""

from __future__ import annotations

from border_cli.cluster.placement import (
    UNLIMITED,
    Node,
    choose,
    fitting,
    in_words,
    lacking,
)
from border_cli.core.config import Placement

CPU = {"CPU": 1.0}


def nodes(**cpus: float) -> list[Node]:
    return [Node(name, name, {"CPU": each}, {"CPU": each}) for name, each in cpus.items()]


def placed(there: list[Node], placement: Placement, count: int) -> str:
    """The nodes of so many actors, one after another; - where none has room."""
    names = ""
    for _ in range(count):
        node = choose(there, CPU, placement)
        if node is not None:
            node.placed += 1
            node.unseen += 1
        names += "-" if node is None else node.node_id
    return names


def test_actors_spread_over_nodes_and_pack_on_few() -> None:
    assert placed(nodes(a=2, b=4), Placement.spread, 7) == "bababb-"
    assert placed(nodes(a=2, b=4), Placement.pack, 7) == "aabbbb-"


def test_what_others_use_is_no_room() -> None:
    [node] = nodes(a=4)
    node.available = {"CPU": 1.0}
    assert node.room(CPU) == 1
    node.unseen = node.placed = 1  # not yet part of `available`
    assert node.room(CPU) == 0


def test_a_node_that_an_actor_failed_on_is_the_last_choice() -> None:
    there = nodes(a=2, b=1)
    assert [choose(there, CPU, Placement.spread, avoid) for avoid in ("a", "b")] == there[::-1]
    there[1].placed = 1
    assert choose(there, CPU, Placement.spread, "a") is there[0]


def test_how_often_a_need_fits() -> None:
    assert fitting({"CPU": 4.0, "memory": 3e9}, {"CPU": 1.0, "memory": 1e9}) == 3
    assert fitting({"CPU": 0.3}, {"CPU": 0.1}) == 3  # 0.3 / 0.1 is a little less
    assert fitting({"CPU": 4.0}, {"gpu": 1.0}) == 0
    assert fitting({}, {"CPU": 0.0}) == UNLIMITED


def test_resources_in_words() -> None:
    assert lacking([{"CPU": 4.0}, {"gpu": 0.0}], {"CPU": 1.0, "gpu": 1.0}) == ["gpu"]
    assert in_words({"CPU": 1.0, "memory": 2.0**31}) == "1 CPU, 2 GiB memory"
