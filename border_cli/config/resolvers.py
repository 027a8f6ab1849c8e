"""Where a run is written: the resolvers of conf/hydra_settings.yaml."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from border_cli.core.files import SETTINGS

FILE = SETTINGS
ANY_ENV = "gym"  # the choice that takes any env.id
MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes


def either(first: str | None, second: str) -> str:
    """`first` unless it is null; `~` is the home folder."""
    return str(Path(first).expanduser()) if first else second


def job_folder(run_dir: str | None, job_number: int, overrides: str) -> str:
    """A sweep's sub-folder: its number, or its overrides where the sweep has a fixed folder.

    `agent=dqn,seed=0` becomes `agent-dqn__seed-0`. A digest keeps apart what becomes equal.
    """
    if not run_dir:
        return str(job_number)
    plain = overrides.replace("=", "-").replace(",", "__")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain)[:MAX_FOLDER_NAME].strip(".-") or "defaults"
    if name == plain and "__" not in overrides:
        return name
    if not overrides:
        return name
    return f"{name}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def env_name(choice: str, *, _root_: DictConfig) -> str:
    """The env's part of a run's name: its choice, or with env=gym its id as a file name.

    `ALE/Pong-v5` becomes `ALE-Pong-v5`, and `my_envs:Corridor-v0` `my_envs-Corridor-v0`.
    """
    env_id = OmegaConf.select(_root_, "env.id", throw_on_missing=False)
    if choice != ANY_ENV or not isinstance(env_id, str) or not env_id:
        return choice
    return re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") or choice


def record_folder(run_dir: str) -> str | None:
    """Where Hydra notes a run: `.hydra`, or null where another attempt's settings are saved.

    Then the job itself notes what was told, once it has really begun: see `frozen.note_attempt`.
    """
    return None if (Path(run_dir) / FILE).exists() else str(FILE.parent)


def register_resolvers() -> None:
    """Makes `${border.…}` known to OmegaConf; repeating it changes nothing."""
    OmegaConf.register_new_resolver("border.or", either, replace=True)
    OmegaConf.register_new_resolver("border.env_name", env_name, replace=True)
    OmegaConf.register_new_resolver("border.job_folder", job_folder, replace=True)
    OmegaConf.register_new_resolver("border.record_folder", record_folder, replace=True)
