"""Checks of the nodes of a cluster before they are used.

Each node that is large enough for an actor must have the same version of border_cli and pass a
trial of its work, such as a few steps in the environment. The error names the first unusable node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from border_cli.errors import ClusterRefused
from border_cli.ray.connection import ClusterSettings
from border_cli.words import pluralize

CHECK_TIMEOUT_S = 60.0  # seconds; a node may first start a worker process and an environment
UNLIMITED = 1_000_000  # number of actors that fit if they require no resources

_ROUNDING = 1e-6  # Ray's resources have a resolution of 1e-4

Amounts = Mapping[str, float]  # amounts of resources by name: CPU, memory (bytes), custom ones


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNeeds:
    """The requirements that a cluster must meet before it is used; picklable."""

    setting: str  # setting to name in errors, e.g. actor_manager=ray
    group: str = "actor_manager"  # group of the settings named in errors
    resources: Amounts = field(default_factory=dict)  # resources of each actor
    count: int = 0  # number of actors that must fit now
    trial: bytes | None = None  # function to call on each node, packed by `system.start.pack`


def check_nodes(cluster: ClusterSettings, needs: ClusterNeeds) -> int:
    """Returns how many actors fit now; raises ClusterRefused if the nodes are unsuitable."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    _refuse_lacking([node["Resources"] for node in nodes], needs)
    if cluster.address is not None:  # otherwise it is this machine, which has been checked
        large_enough = [node for node in nodes if count_fits(node["Resources"], needs.resources)]
        _refuse_unfit(large_enough, needs)
    room = count_fits(ray.available_resources(), needs.resources)
    if room < needs.count:
        raise ClusterRefused(
            f"{needs.setting}: {pluralize(needs.count, 'actor')} of "
            f"{format_amounts(needs.resources)} each ({needs.group}.resources) do not fit "
            f"alongside what is in use; {room} of them fit: "
            f"{needs.group}.num_actors={max(1, room)}, or num_actors=auto, which also uses nodes "
            "that join later"
        )
    return room


def _refuse_lacking(totals: list[Amounts], needs: ClusterNeeds) -> None:
    if not any(count_fits(total, needs.resources) for total in totals):
        available = sorted({name for total in totals for name in total if ":" not in name})
        raise ClusterRefused(
            f"{needs.group}.resources: no node of the cluster has "
            f"{format_amounts(needs.resources)}, even when idle (known: {', '.join(available)})"
        )


def _refuse_unfit(nodes: list[Any], needs: ClusterNeeds) -> None:
    """Checks all nodes in parallel; raises ClusterRefused for the first one that is unusable."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    version, inspect = _check_functions()
    task, expected, results = ray.remote(num_cpus=0, max_retries=0)(inspect), version(), []
    for node in nodes:
        pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        results.append(task.options(scheduling_strategy=pinned).remote(expected, needs.trial))
    for node, result in zip(nodes, results, strict=True):
        try:
            reason = ray.get(result, timeout=CHECK_TIMEOUT_S)
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue  # the node is gone, which the head node has not noticed yet
        except ray.exceptions.RayError as error:
            reason = str(error)
        if reason:
            name = f"node {node['NodeName']} ({node['NodeManagerAddress']})"
            raise ClusterRefused(f"{needs.setting}: {name}: {reason}")


def _check_functions() -> tuple[Callable[[], str], Callable[[str, bytes | None], str]]:
    """Returns two functions that are pickled by value, because a node may lack border_cli."""

    def version() -> str:
        import hashlib
        from importlib import import_module
        from pathlib import Path

        package = import_module("border_cli")
        home, checksum = Path(str(package.__file__)).parent, hashlib.sha256()
        for path in sorted(home.rglob("*.py")):
            checksum.update(str(path.relative_to(home)).encode() + path.read_bytes())
        return f"{package.__version__} ({checksum.hexdigest()[:8]})"

    def inspect(expected: str, trial: bytes | None) -> str:
        """Returns why the node cannot be used, or an empty string."""
        try:
            installed = version()
            if installed != expected:
                return (
                    f"it has border_cli {installed}, but this machine has {expected}: install the "
                    "same version on every node"
                )
            if trial is not None:
                from border_cli.system.start import unpack

                unpack(trial)()
        except ModuleNotFoundError as error:
            return (
                f"it lacks the module {error.name!r}: install its package there, or, if it is your "
                "own module, send it with imports=[…]"
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return version, inspect


def count_fits(amounts: Amounts, need: Amounts) -> int:
    """Returns how many times `need` fits into `amounts`."""
    positive = {name: amount for name, amount in need.items() if amount > 0}
    ratios = (amounts.get(name, 0.0) / needed for name, needed in positive.items())
    return min((math.floor(ratio + _ROUNDING) for ratio in ratios), default=UNLIMITED)


def format_amounts(amounts: Amounts) -> str:
    """Formats amounts of resources, e.g. as `4 CPU, 2e+09 memory`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items()) or "nothing"


def options_of(resources: Amounts) -> dict[str, Any]:
    """Returns Ray's options for an actor with these resources; the default is no CPU."""
    options = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    standard = {options[name]: amount for name, amount in resources.items() if name in options}
    custom = {name: amount for name, amount in resources.items() if name not in options}
    return {"num_cpus": 0, **standard, **({"resources": custom} if custom else {})}
