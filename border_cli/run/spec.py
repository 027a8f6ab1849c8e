"""The spaces of a run's environment as JSON. Stored next to the models, they let a policy act
without the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec, RawDict, RawSpace, RawSpaces, has_masks
from border_cli.errors import CheckpointError
from border_cli.run.manifest import read_json
from border_cli.system.files import POLICY_JSON, is_exported, write_json

ENV_JSON = "env.json"


def write_spec(run_dir: Path, spec: EnvSpec) -> None:
    """Writes the spaces of the environment, if the spec contains them."""
    if spec.raw is not None:
        write_json(run_dir / ENV_JSON, spec_as_json(spec))


def read_spec(folder: Path) -> EnvSpec | None:
    """Reads the spaces of a run or of an exported policy. Returns None if the file is missing;
    raises `CheckpointError` if it is damaged."""
    path = folder / (POLICY_JSON if is_exported(folder) else ENV_JSON)
    if not path.exists():
        return None
    content = read_json(path)
    content = content.get("env", content)
    try:
        return spec_from_json(content)
    except Exception as error:  # the file may contain anything
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def spec_as_json(spec: EnvSpec) -> dict[str, Any]:
    """Returns everything that a policy needs to know about the environment, for `write_json`."""
    assert spec.raw is not None, "checked by the caller"
    return {
        "id": spec.id,
        "max_episode_steps": spec.max_episode_steps,
        "stacked": spec.stacked,
        "observation": {key: _as_json(part) for key, part in spec.raw.observation.parts.items()},
        "masked": has_masks(spec.observation),
        "action": _as_json(spec.raw.action),
        "left_out": list(spec.left_out),
    }


def spec_from_json(content: Mapping[str, Any]) -> EnvSpec:
    """Restores a spec from the output of `spec_as_json`; raises various errors for other input."""
    parts = {key: _from_json(part) for key, part in content["observation"].items()}
    observation = parts.get("") or RawDict(parts, content["masked"])
    raw = RawSpaces(observation, _from_json(content["action"]))
    limit, stacked = content["max_episode_steps"], content["stacked"]
    left_out = tuple(content["left_out"])
    return EnvSpec(
        content["id"], *raw.converted, limit, stacked=stacked, raw=raw, left_out=left_out
    )


def _as_json(space: RawSpace) -> dict[str, Any]:
    return {**asdict(space), "low": _as_list(space.low), "high": _as_list(space.high)}


def _as_list(bounds: NDArray[Any]) -> Any:
    """Returns a single number if all bounds are equal, else a list."""
    unique = np.unique(bounds)
    return (unique[0] if unique.size == 1 else bounds).tolist()


def _from_json(content: Mapping[str, Any]) -> RawSpace:
    if content["kind"] not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        raise ValueError(f"there is no space of the kind {content['kind']!r}")
    shape = tuple(content["shape"])
    bounds = {}
    for name, infinity in (("low", -np.inf), ("high", np.inf)):
        values = np.array(content[name], object)
        values[values == np.array(None)] = infinity  # JSON has no infinity
        bounds[name] = np.broadcast_to(values.astype(content["dtype"]), shape)
    return RawSpace(**{**content, **bounds, "shape": shape})
