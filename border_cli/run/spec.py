"""The spaces of a run's environment as JSON beside its models, which act without one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import (
    EnvSpec,
    RawDict,
    RawObservation,
    RawSpace,
    RawSpaces,
    space_of,
)
from border_cli.errors import CheckpointError
from border_cli.run.manifest import read_json
from border_cli.system.files import POLICY_JSON, is_exported, write_text

ENV_JSON = "env.json"


def write_spec(run_dir: Path, spec: EnvSpec) -> None:
    """Writes them, where the environment tells them."""
    if spec.raw is not None:
        write_text(run_dir / ENV_JSON, json.dumps(spec_as_json(spec), allow_nan=False) + "\n")


def read_spec(place: Path) -> EnvSpec | None:
    """Those of a run or of an exported policy; None where there are none, as in runs of earlier
    versions. Raises `CheckpointError` where they are damaged."""
    path = place / (POLICY_JSON if is_exported(place) else ENV_JSON)
    if not path.exists():
        return None
    content = read_json(path)
    try:
        return spec_from_json(content["env"] if path.name == POLICY_JSON else content)
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def spec_as_json(spec: EnvSpec) -> dict[str, Any]:
    """Everything that acting in an environment needs to know of it."""
    assert spec.raw is not None, "whoever calls this asks first"
    seen = spec.raw.observation
    observation: dict[str, Any] = (
        _leaf_as_json(seen)
        if isinstance(seen, RawSpace)
        else {
            "kind": "Dict",
            "parts": {key: _leaf_as_json(part) for key, part in seen.parts.items()},
            "masked": seen.masked,
        }
    )
    facts = {"id": spec.id, "max_episode_steps": spec.max_episode_steps, "stacked": spec.stacked}
    return {**facts, "observation": observation, "action": _leaf_as_json(spec.raw.action)}


def spec_from_json(content: Mapping[str, Any]) -> EnvSpec:
    """What `spec_as_json` gave; raises LookupError, TypeError or ValueError for anything else."""
    seen = content["observation"]
    observation: RawObservation
    if seen["kind"] == "Dict":
        parts = {str(key): _leaf_from_json(part) for key, part in seen["parts"].items()}
        observation = RawDict(parts, bool(seen["masked"]))
    else:
        observation = _leaf_from_json(seen)
    raw = RawSpaces(observation, _leaf_from_json(content["action"]))
    return EnvSpec(
        id=str(content["id"]),
        observation=space_of(observation),
        action=raw.action.leaf,
        max_episode_steps=content["max_episode_steps"],
        stacked=bool(content["stacked"]),
        raw=raw,
    )


def _leaf_as_json(raw: RawSpace) -> dict[str, Any]:
    bounds = {"low": _as_list(raw.low), "high": _as_list(raw.high)}
    return {**asdict(raw), "shape": list(raw.shape), **bounds}


def _as_list(values: NDArray[Any]) -> Any:
    """Numbers, or one for all; None, which JSON has, for an infinity, which it has not."""
    if values.size and (values == values.flat[0]).all():
        values = values.ravel()[:1].reshape(())
    if values.dtype.kind != "f":
        return values.tolist()
    listed = values.astype(object)  # of Python's numbers
    listed[~np.isfinite(values)] = None
    return listed.tolist()


def _leaf_from_json(content: Mapping[str, Any]) -> RawSpace:
    shape, dtype = tuple(map(int, content["shape"])), np.dtype(content["dtype"])
    if content["kind"] not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        raise ValueError(f"there is no space of the kind {content['kind']!r}")

    def bound(name: str, infinite: float) -> NDArray[Any]:
        values = np.asarray(content[name], np.float64 if dtype.kind == "f" else dtype)
        if dtype.kind == "f":
            values = np.where(np.isnan(values), infinite, values)
        return np.broadcast_to(values, shape).astype(dtype)

    low, high = bound("low", -np.inf), bound("high", np.inf)
    return RawSpace(content["kind"], shape, dtype.name, low, high, str(content["text"]))
