"""What a node is asked before it is used, and what it answers.

The question is sent as source of its own, and all that it needs is imported by it: a node may have
no border_cli, or another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from border_cli.core.errors import BorderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What must be the same on every node."""

    python: str
    ray: str
    border_cli: str
    source: str  # checksum of border_cli's files


@cache
def expected() -> Versions:
    """Those of this machine."""
    return Versions(**_asking()[0]())


def inspect_node(node_id: str, versions: Versions, trial: bytes | None) -> Any:
    """Asks a node; returns the reference to why it cannot be used, or to None."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(_asking()[1])
    pinned = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return task.options(scheduling_strategy=pinned).remote(asdict(versions), trial)


def _asking() -> tuple[Callable[[], dict[str, str]], Callable[..., str | None]]:
    """Two functions that are sent by value, since they are no names of a module."""

    def found() -> dict[str, str]:
        import hashlib
        import platform
        from importlib import import_module
        from importlib.util import find_spec
        from pathlib import Path

        import ray

        try:
            spec = find_spec("border_cli")
        except ImportError:
            spec = None
        version, checksum = "none", hashlib.sha256()
        if spec is not None and spec.origin is not None:
            version = import_module("border_cli").__version__
            home = Path(spec.origin).parent
            for each in sorted(home.rglob("*.py")):
                checksum.update(str(each.relative_to(home)).encode() + each.read_bytes())
        return {
            "python": platform.python_version(),
            "ray": ray.__version__,
            "border_cli": version,
            "source": checksum.hexdigest()[:12],
        }

    def inspect(wanted: dict[str, str], trial: bytes | None) -> str | None:
        there = found()
        if there["border_cli"] == "none":
            return f"it lacks border_cli: install {wanted['border_cli']} there, as here"
        for what in ("python", "ray", "border_cli"):
            if there[what] != wanted[what]:
                return (
                    f"it has {what} {there[what]} where this machine has {wanted[what]}: install "
                    "the same on every node"
                )
        if there["source"] != wanted["source"]:
            return (
                f"its files of border_cli {there['border_cli']} are others than on this machine: "
                "install the same on every node"
            )
        if trial is None:
            return None
        from border_cli.cluster.inspection import tried

        return tried(trial)

    return found, inspect


def tried(trial: bytes) -> str | None:
    """Runs on the node: why what was packed fails there, if it does."""
    from border_cli.process.start import unpack

    try:
        unpack(trial)()
    except ModuleNotFoundError as error:
        return (
            f"it lacks the module {error.name!r}: install its package there, or have it travel by "
            "imports=[…], which sends modules of your own"
        )
    except BorderError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def reason_of_failure(error: BaseException) -> str:
    """Why a node gave no answer at all."""
    lines = [each for each in str(error).splitlines() if each.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'without a message'}"
