"""The nodes of a cluster: which can run actors, and where the next one goes.

Every node is asked before it is used, also one that joins later: for its versions of Python, Ray
and border_cli, and to play a few steps in the environment. Before training begins a node that
fails refuses the run with its name; one that joins later is reported and not used. Ray is imported
by the functions that ask it, as `connection.py` says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from border_cli.cluster.connection import Cluster
from border_cli.cluster.inspection import expected, inspect_node, reason_of_failure
from border_cli.cluster.placement import (
    Amounts,
    Node,
    choose,
    fitting,
    in_words,
    lacking,
)
from border_cli.core.config import Placement
from border_cli.core.errors import ClusterRefused
from border_cli.core.timing import Clock
from border_cli.core.words import counted, listed, nearest

log = logging.getLogger(__name__)

ANSWER_S = 60.0  # for a node's answer: a first worker process on a slow disk, and an environment
LOOK_S = 1.0  # between two looks at the cluster
JOIN_S = 2.0  # for the end of the thread
NAMED = 5  # nodes in a message

_JOINED = {"CPU": 1.0}  # of an actor on a cluster that others use, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What actors need of a node; picklable."""

    setting: str  # that asks for the cluster, to begin a refusal: actor_manager=ray
    group: str = "actor_manager"  # whose settings are named
    # Of each actor; none: one CPU, and nothing of a Ray that is started here.
    resources: Amounts = field(default_factory=dict)
    count: int | None = None  # actors; None: as many as fit
    placement: Placement = Placement.spread
    waits: bool = False  # for what others use: full nodes are no reason to refuse
    trial: bytes | None = None  # packed (`process.start.pack`): a function that tries what it needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an actor goes."""

    node_id: str
    node: str  # its name
    options: Mapping[str, Any]  # for `Actor.options`


class Nodes:
    """The nodes that may be used, between `__enter__`, which checks them, and `__exit__`.

    A thread of its own follows the cluster; `place`, `release` and the properties answer from
    what it saw last, in any thread, without waiting for the cluster.
    """

    def __init__(self, cluster: Cluster, needs: Needs, *, clock: Clock) -> None:
        self._cluster = cluster
        self._needs = needs
        self._clock = clock
        self.resources: Amounts = needs.resources or ({} if cluster.started else _JOINED)
        self._nodes: dict[str, Node] = {}  # those in use, by id
        self._asked: dict[str, tuple[Any, float]] = {}  # reference to the answer, since when
        self._fit: set[str] = set()  # those that answered well
        self._refused: dict[str, str] = {}  # why others are not used
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()  # of `_nodes`
        self._over = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="nodes", daemon=True)

    def __enter__(self) -> Self:
        self._check()
        self._follower.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._follower.join(JOIN_S)  # one that waits for a lost cluster is left behind

    @property
    def places(self) -> int:
        """Actors that fit on the nodes, those of ours included."""
        with self._lock:
            return sum(each.placed + each.room(self.resources) for each in self._nodes.values())

    @property
    def names(self) -> list[str]:
        """The names of the nodes in use, in their order."""
        with self._lock:
            return sorted(each.name for each in self._nodes.values())

    def place(self, avoid: str | None = None) -> Place | None:
        """Where the next actor goes, and not to the node `avoid` if another has room; None where
        none has room at present."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        with self._lock:
            node = choose(self._nodes.values(), self.resources, self._needs.placement, avoid)
            if node is None:
                return None
            node.placed += 1
            node.unseen += 1
        strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        options = {**options_of(self.resources), "scheduling_strategy": strategy}
        return Place(node_id=node.node_id, node=node.name, options=options)

    def release(self, place: Place) -> None:
        """An actor that was placed there has ended."""
        with self._lock:
            node = self._nodes.get(place.node_id)
            if node is not None:
                node.placed -= 1

    def _check(self) -> None:
        """Raises ClusterRefused where the nodes that are there cannot run the actors."""
        alive = _alive_nodes()
        self._refuse_lacking(list(alive.values()))
        self._ask(alive)
        began_s = self._clock.now_s()
        while self._asked and self._clock.now_s() - began_s < ANSWER_S:
            self._take_answers(wait_s=LOOK_S)
        self._refuse_silent(0.0)
        if self._refused:
            raise ClusterRefused(self._refusal())
        self._update(alive)
        self._refuse_full()

    def _refuse_lacking(self, nodes: list[Any]) -> None:
        totals = [each["Resources"] for each in nodes]
        setting = f"{self._needs.group}.resources"
        for name in lacking(totals, self.resources):
            known = sorted({each for total in totals for each in total if ":" not in each})
            near = nearest(name, known)
            hint = f", did you mean {near}?" if near else ""
            raise ClusterRefused(
                f"{setting}: no node of the cluster has {name!r}{hint} (known: {', '.join(known)})"
            )
        if not any(fitting(each, self.resources) for each in totals):
            most = "; ".join(in_words(_of_those(each, self.resources)) for each in totals)
            raise ClusterRefused(
                f"{setting}: no node of the cluster has {in_words(self.resources)} for an actor, "
                f"whatever is in use (nodes have: {most})"
            )

    def _refuse_full(self) -> None:
        """Raises where fewer actors fit than are asked for."""
        room, asked = self.places, self._needs.count
        if self._needs.waits or room >= (asked or 1):
            return
        nodes = self._nodes.values()
        total = _sums((each.total for each in nodes), self.resources)
        free = _sums((each.available for each in nodes), self.resources)
        used = {name: total[name] - free[name] for name in total}
        actors = "an actor" if asked is None else counted(asked, "actor")
        remedy = "wait, or stop what uses them"
        if room:
            remedy = (
                f"{room} of them fit: {self._needs.group}.num_actors={room}, or num_actors=auto, "
                "which also uses nodes that join later"
            )
        raise ClusterRefused(
            f"{self._needs.setting}: {actors} of {in_words(self.resources)} each "
            f"({self._needs.group}.resources) do not fit: {counted(len(self._nodes), 'node')} with "
            f"{in_words(total)}, of which others use {in_words(used)}; {remedy}"
        )

    def _refusal(self) -> str:
        """Each reason once, with the nodes that gave it."""
        reasons: dict[str, list[str]] = {}
        for node_id, reason in self._refused.items():
            reasons.setdefault(reason, []).append(self._names[node_id])
        return "\n".join(
            f"{self._needs.setting}: {listed(names, NAMED)}: {reason}"
            for reason, names in reasons.items()
        )

    def _ask(self, alive: Mapping[str, Any]) -> None:
        """Asks the nodes that are new and large enough."""
        for node_id, node in alive.items():
            self._names.setdefault(node_id, _name_of(node))
            known = node_id in self._fit or node_id in self._refused or node_id in self._asked
            if known or not fitting(node["Resources"], self.resources):
                continue
            if self._cluster.started:  # this machine, where the environment was tried
                self._fit.add(node_id)
                continue
            answer = inspect_node(node_id, expected(), self._needs.trial)
            self._asked[node_id] = (answer, self._clock.now_s())

    def _take_answers(self, wait_s: float) -> None:
        import ray
        from ray.exceptions import NodeDiedError, TaskUnschedulableError

        if not self._asked:
            return
        waiting = {answer: node_id for node_id, (answer, _) in self._asked.items()}
        arrived, _ = ray.wait(list(waiting), num_returns=1, timeout=wait_s)
        for answer in arrived:
            node_id = waiting[answer]
            del self._asked[node_id]
            try:
                reason = ray.get(answer)
            except (NodeDiedError, TaskUnschedulableError):
                continue  # it is gone, though not yet for the head node; otherwise asked again
            except Exception as error:  # whatever else ended the task
                reason = reason_of_failure(error)
            if reason is None:
                self._fit.add(node_id)
            else:
                self._refused[node_id] = reason

    def _refuse_silent(self, after_s: float) -> None:
        now_s = self._clock.now_s()
        for node_id, (_, since_s) in list(self._asked.items()):
            if now_s - since_s >= after_s:
                del self._asked[node_id]
                self._refused[node_id] = f"it did not answer within {ANSWER_S:g} s"

    def _update(self, alive: Mapping[str, Any]) -> None:
        """What nodes have now; those that are gone leave with their actors."""
        available = _available_by_node()
        with self._lock:
            for node_id in set(self._nodes) - set(alive):
                del self._nodes[node_id]
            for node_id in self._fit & set(alive):
                total, free = alive[node_id]["Resources"], available.get(node_id, {})
                node = self._nodes.get(node_id)
                if node is None:
                    node = Node(node_id, self._names[node_id], total, free)
                    self._nodes[node_id] = node
                node.total, node.available, node.unseen = total, free, 0

    def _follow(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self._look()
            except Exception as error:  # it does not answer; `HeadWatch` finds out why
                log.debug("the nodes of the cluster are unknown: %r", error)

    def _look(self) -> None:
        alive, before = _alive_nodes(), set(self._refused)
        self._ask(alive)
        self._take_answers(wait_s=0.0)
        self._refuse_silent(ANSWER_S)
        for node_id in set(self._refused) - before:
            log.warning("%s is not used: %s", self._names[node_id], self._refused[node_id])
        self._update(alive)


def _alive_nodes() -> dict[str, Any]:
    """Ray's description of each node, by id."""
    import ray

    return {each["NodeID"]: each for each in ray.nodes() if each["Alive"]}


def _available_by_node() -> dict[str, Amounts]:
    import ray
    from ray._private.state import available_resources_per_node

    if ray.util.client.ray.is_connected():  # it is answered by the cluster alone
        ask = ray.remote(num_cpus=0)(available_resources_per_node)
        found: dict[str, Amounts] = ray.get(ask.remote(), timeout=ANSWER_S)
        return found
    return dict(available_resources_per_node())


def options_of(resources: Amounts) -> dict[str, Any]:
    """Ray's own names of what an actor needs; without any it takes no CPU."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    named = {own[name]: amount for name, amount in resources.items() if name in own}
    custom = {name: amount for name, amount in resources.items() if name not in own}
    return {"num_cpus": 0, **named, **({"resources": custom} if custom else {})}


def _name_of(node: Mapping[str, Any]) -> str:
    """As people call it: its own name, or that of its machine, with the address."""
    address, name = node["NodeManagerAddress"], node.get("NodeName") or ""
    return f"node {name if name != address else node['NodeManagerHostname']} ({address})"


def _of_those(amounts: Amounts, need: Amounts) -> Amounts:
    return {name: amounts.get(name, 0.0) for name in need}


def _sums(each_has: Iterable[Amounts], need: Amounts) -> dict[str, float]:
    amounts = list(each_has)
    return {name: sum(each.get(name, 0.0) for each in amounts) for name in need}
