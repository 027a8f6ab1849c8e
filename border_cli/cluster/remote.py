"""Ray actors: the options that reserve resources for one, and why one is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CAPITALS: Final = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


def options_of(resources: Mapping[str, float]) -> dict[str, Any]:
    """The options of a Ray actor that takes these resources, named as Ray names them."""
    options: dict[str, Any] = {"num_cpus": 0.0}
    custom = {}
    for name, amount in resources.items():
        if name in CAPITALS:
            options[CAPITALS[name]] = int(amount) if name == "memory" else amount
        else:
            custom[name] = amount
    return {**options, "resources": custom} if custom else options


def total_cpus() -> int:
    """The CPUs of the cluster that this process is connected to, as Ray counts them."""
    import ray

    resources: Any = ray.cluster_resources  # which has no types
    return max(1, int(resources().get("CPU", 1)))


def why(error: Exception) -> str:
    """What ended a Ray actor, in one line without Ray's ids."""
    cause = getattr(error, "cause", None)  # what was raised there
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    lines = [each for each in str(error).splitlines() if each and not each.startswith("\t")]
    return " ".join(each.strip() for each in lines)
