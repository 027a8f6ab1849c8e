"""The spaces of a run's environment beside its models, which act without one."""

from __future__ import annotations

import json
from pathlib import Path

from border_cli.core.spaces import EnvSpec
from border_cli.core.spec_json import spec_as_json, spec_from_json
from border_cli.errors import CheckpointError
from border_cli.run.manifest import read_json
from border_cli.system.files import write_text

ENV_JSON = "env.json"


def write_spec(run_dir: Path, spec: EnvSpec) -> None:
    """Writes them, where the environment tells them."""
    if spec.raw is not None:
        write_text(run_dir / ENV_JSON, json.dumps(spec_as_json(spec), allow_nan=False) + "\n")


def read_spec(run_dir: Path) -> EnvSpec | None:
    """The description that was written; None where there is none, as in runs of earlier versions.

    Raises `CheckpointError` where it is damaged.
    """
    path = run_dir / ENV_JSON
    if not path.exists():
        return None
    try:
        return spec_from_json(read_json(path))
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__}: {error}") from error
