"""Policies for callers that step an environment of their own, out of a run or an exported folder.

What a run needs, torch and Hydra among it, is imported by the function that finds one, and so is
torch for an exported policy without `policy.npz`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.raw_values import translator_of
from border_cli.errors import CheckpointError, ConfigError
from border_cli.export.folder import POLICY_JSON, POLICY_NPZ, is_exported, opened_folder

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
    if not is_exported(folder):
        from border_cli.api import policy_of_run

        return policy_of_run(folder, checkpoint, env=env, trust=trust)
    if checkpoint is not None or env is not None:
        raise ConfigError(f"{folder} is an exported policy, which takes no checkpoint and no env")
    opened = opened_folder(folder)
    translator = translator_of(opened.form.spec)
    if POLICY_NPZ not in opened.files:
        from border_cli.export.agent import torch_policy

        return LoadedPolicy(torch_policy(opened, trust=trust), translator)
    from border_cli.export.numpy_policy import NumpyPolicy

    arrays = opened.arrays()
    try:
        return LoadedPolicy(NumpyPolicy(opened.form, arrays), translator)
    except (LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder / POLICY_JSON} does not fit {POLICY_NPZ}: {type(error).__name__}: {error}"
        ) from error
