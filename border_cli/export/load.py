"""Policies of runs and exported folders, for callers that step an environment of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.errors import ConfigError
from border_cli.export.numpy_policy import numpy_policy
from border_cli.run.exported import POLICY_NPZ, opened_folder
from border_cli.system.files import is_exported

if TYPE_CHECKING:
    from border_cli.env.given import MakeEnv


def load_policy(
    place: str | Path,
    checkpoint: str | int | None = None,
    *,
    env: MakeEnv | None = None,
    trust: bool = False,
) -> LoadedPolicy:
    """The policy of a run, or one that `border-export` has written. Neither needs the environment.

    Of a run it is the best model, `latest`, or the checkpoint of a number of updates; `place` may
    also be a checkpoint itself, such as `RUN_DIR/best` or `RUN_DIR/checkpoints/5000`. An exported
    policy needs numpy alone where its folder has a `policy.npz`.

    Modules that the run names are imported where this Python finds them by itself or in the
    current directory, never out of the run directory; ConfigError where they are not there. With
    `trust` also where the run says that it had found them. Raises CheckpointError where there is
    no such checkpoint or policy, or where it is damaged.
    """
    folder = Path(place).expanduser()
    if is_exported(folder):
        if checkpoint is not None or env is not None:
            raise ConfigError(f"{folder} is an exported policy: leave out checkpoint and env")
        opened = opened_folder(folder)
        if POLICY_NPZ in opened.content["files"]:
            policy = numpy_policy(opened)
            return LoadedPolicy(policy.act, policy.form.spec)
    # imported late: torch and Hydra, which an exported policy does not need
    from border_cli.api import policy_of_run

    return policy_of_run(folder, checkpoint, env=env, trust=trust)
