"""Interpolations: `${border.…}`, by which conf/hydra_settings.yaml says where a run is written,
and values in which `${` means itself."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import omegaconf
from omegaconf import DictConfig, OmegaConf

ANY_ENV = "gym"  # the choice that takes any env.id
OWN_NAME = "${border.job_folder:"  # how the sub-folder of a job is written unless a user chose it
MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes
_OPENING = re.compile(r"(\\*)\$\{")


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
    if not overrides or (name == plain and "__" not in overrides):
        return name
    return f"{name}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def run_name(*, _root_: DictConfig) -> str:
    """`dqn_cartpole`, after the options of agent and env; with env=gym the id as a file name.

    `ALE/Pong-v5` becomes `ALE-Pong-v5`, and `my_envs:Corridor-v0` `my_envs-Corridor-v0`.
    """
    agent, env, env_id = (
        str(OmegaConf.select(_root_, key, throw_on_missing=False) or "")
        for key in ("agent.option", "env.option", "env.id")
    )
    named = re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") if env == ANY_ENV else ""
    return f"{agent}_{named or env}"


def register_resolvers() -> None:
    """Makes `${border.…}` known to OmegaConf; repeating it changes nothing."""
    named = {"or": either, "name": run_name, "job_folder": job_folder}
    # OmegaConf 2.4 has another name for it, which means something else before.
    new = omegaconf.__version__ >= "2.4"
    register: Any = OmegaConf.register_resolver if new else OmegaConf.register_new_resolver
    for name, resolver in named.items():
        register(f"border.{name}", resolver, replace=True)


def plain(value: Any) -> Any:
    """Settings as OmegaConf and YAML are given them: mappings, lists and values, in which `${` is
    escaped and a scalar of numpy's is Python's own."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return _OPENING.sub(lambda found: 2 * found[1] + r"\${", value)
    return value.item() if getattr(value, "shape", None) == () else value
