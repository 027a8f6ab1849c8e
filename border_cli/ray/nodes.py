"""Checks of the nodes of a cluster before they are used.

Each is asked for its version of border_cli, and to try what will run there, such as a few steps in
the environment: a node that fails refuses the run with its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from border_cli.errors import ClusterRefused
from border_cli.ray.connection import ClusterSettings
from border_cli.words import counted, nearest

ANSWER_S = 60.0  # for a node's answer: a first worker process on a slow disk, an environment
UNLIMITED = 1_000_000  # actors that fit where they ask for nothing

_ROUNDING = 1e-6  # Ray counts in steps of 1e-4

Amounts = Mapping[str, float]  # of resources by name: CPU, memory (bytes), custom ones


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeeds:
    """The resources and environments that a cluster must have before it is used; picklable."""

    setting: str  # that asks for the cluster, to begin a refusal: actor_manager=ray
    group: str = "actor_manager"  # whose settings are named
    resources: Amounts = field(default_factory=dict)  # of each actor
    count: int = 0  # actors for which there must be room now
    trial: bytes | None = None  # packed (`process.start.pack`): a function that tries what it needs


def check_nodes(cluster: ClusterSettings, needs: ClusterNeeds) -> int:
    """How many actors the nodes have room for; raises ClusterRefused where they cannot run them."""
    import ray

    nodes = [each for each in ray.nodes() if each["Alive"]]
    _refuse_lacking([each["Resources"] for each in nodes], needs)
    if cluster.address is not None:  # else it is this machine, where the environment was tried
        fit = [each for each in nodes if fitting(each["Resources"], needs.resources)]
        _refuse_unfit(fit, needs)
    room = fitting(ray.available_resources(), needs.resources)
    if room < needs.count:
        raise ClusterRefused(
            f"{needs.setting}: {counted(needs.count, 'actor')} of {in_words(needs.resources)} each "
            f"({needs.group}.resources) do not fit beside what others use; {room} of them fit: "
            f"{needs.group}.num_actors={max(1, room)}, or num_actors=auto, which also uses nodes "
            "that join later"
        )
    return room


def _refuse_lacking(totals: list[Amounts], needs: ClusterNeeds) -> None:
    known = sorted({name for total in totals for name in total if ":" not in name})
    for name, amount in needs.resources.items():
        if amount > 0 and name not in known:
            near = nearest(name, known)
            hint = f", did you mean {near}?" if near else ""
            raise ClusterRefused(
                f"{needs.group}.resources: no node of the cluster has {name!r}{hint} "
                f"(known: {', '.join(known)})"
            )
    if not any(fitting(total, needs.resources) for total in totals):
        raise ClusterRefused(
            f"{needs.group}.resources: no node of the cluster has {in_words(needs.resources)}, "
            "whatever is in use"
        )


def _refuse_unfit(nodes: list[Any], needs: ClusterNeeds) -> None:
    """Asks all nodes at once; raises for the first that cannot be used."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    version, inspect = _asking()
    task, here, answers = ray.remote(num_cpus=0, max_retries=0)(inspect), version(), []
    for node in nodes:
        pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers.append(task.options(scheduling_strategy=pinned).remote(here, needs.trial))
    for node, answer in zip(nodes, answers, strict=True):
        try:
            reason = ray.get(answer, timeout=ANSWER_S)
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue  # it is gone, though not yet for the head node
        except ray.exceptions.RayError as error:
            reason = str(error)
        if reason:
            name = f"node {node['NodeName']} ({node['NodeManagerAddress']})"
            raise ClusterRefused(f"{needs.setting}: {name}: {reason}")


def _asking() -> tuple[Callable[[], str], Callable[[str, bytes | None], str]]:
    """Two functions that are sent by value, because a node may have no border_cli."""

    def version() -> str:
        import hashlib
        from importlib import import_module
        from pathlib import Path

        package = import_module("border_cli")
        home, checksum = Path(str(package.__file__)).parent, hashlib.sha256()
        for each in sorted(home.rglob("*.py")):
            checksum.update(str(each.relative_to(home)).encode() + each.read_bytes())
        return f"{package.__version__} ({checksum.hexdigest()[:8]})"

    def inspect(here: str, trial: bytes | None) -> str:
        """Why the node cannot be used; empty where it can."""
        try:
            there = version()
            if there != here:
                return (
                    f"it has border_cli {there} where this machine has {here}: install the same on "
                    "every node"
                )
            if trial is not None:
                from border_cli.system.start import unpack

                unpack(trial)()
        except ModuleNotFoundError as error:
            return (
                f"it lacks the module {error.name!r}: install its package there, or have it travel "
                "by imports=[…], which sends modules of your own"
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return version, inspect


def fitting(amounts: Amounts, need: Amounts) -> int:
    """How often `need` is contained in `amounts`."""
    asked = {name: amount for name, amount in need.items() if amount > 0}
    times = (amounts.get(name, 0.0) / each for name, each in asked.items())
    return min((math.floor(each + _ROUNDING) for each in times), default=UNLIMITED)


def in_words(amounts: Amounts) -> str:
    """`4 CPU, 2e+09 memory`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items()) or "nothing"


def options_of(resources: Amounts) -> dict[str, Any]:
    """Ray's own names of what an actor needs; without any it takes no CPU."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    named = {own[name]: amount for name, amount in resources.items() if name in own}
    custom = {name: amount for name, amount in resources.items() if name not in own}
    return {"num_cpus": 0, **named, **({"resources": custom} if custom else {})}
