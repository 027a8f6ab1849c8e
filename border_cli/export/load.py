"""Loads policies from runs and exported folders, for callers that step their own environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.errors import ConfigError
from border_cli.export.numpy_policy import numpy_policy
from border_cli.run.exported import POLICY_NPZ, open_export
from border_cli.system.files import expand_user, is_exported

if TYPE_CHECKING:
    from border_cli.env.python_env import MakeEnv


def load_policy(
    place: str | Path,
    checkpoint: str | int | None = None,
    *,
    env: MakeEnv | None = None,
    trust: bool = False,
) -> LoadedPolicy:
    """Loads the policy of a run or a policy exported by `border-export`, without its environment.

    For a run, `checkpoint` is `latest` or a number of updates; the default is the best model.
    `place` may also be a checkpoint, such as `RUN_DIR/best` or `RUN_DIR/checkpoints/5000`. An
    exported policy requires only numpy if its folder contains a `policy.npz`. `env` is needed only
    for a run without `env.json` whose environment was passed to `train`.

    Modules named by the run are imported from the current directory or wherever this Python finds
    them, never from the run directory. With `trust` they are also imported from the paths that the
    run recorded. Raises ConfigError if a module is not found, and CheckpointError if the checkpoint
    or policy is missing or corrupt.
    """
    folder = expand_user(place)
    if is_exported(folder):
        if checkpoint is not None or env is not None:
            raise ConfigError(f"{folder} is an exported policy: leave out checkpoint and env")
        exported = open_export(folder)
        if POLICY_NPZ in exported.content["files"]:
            policy = numpy_policy(exported)
            return LoadedPolicy(policy.act, policy.form.spec)
    # imported late: loads torch and Hydra, which an exported policy does not require
    from border_cli.api import policy_of_run

    return policy_of_run(folder, checkpoint, env=env, trust=trust)
