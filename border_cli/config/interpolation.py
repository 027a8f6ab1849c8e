"""Interpolations: `${border.…}`, which conf/hydra_settings.yaml uses to say where a run is written;
`${hydra:…}` without the process-wide HydraConfig; and values in which `${` means itself."""

from __future__ import annotations

import hashlib
import operator
import re
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import omegaconf
from omegaconf import DictConfig, ListConfig, OmegaConf

ANY_ENV = "gym"  # the choice that takes any env.id
OWN_NAME = "${border.job_folder:"  # how the sub-folder of a job is written unless a user chose it
MAX_FOLDER_NAME = 120  # characters; file systems allow 255 bytes
_OPENING = re.compile(r"(\\*)\$\{")
_HYDRA_VALUE = re.compile(r"\$\{hydra:\s*([\w.]+)\s*\}")


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


def env_name(choice: str, *, _root_: DictConfig) -> str:
    """`env_part` of a composition."""
    return env_part(choice, OmegaConf.select(_root_, "env.id", throw_on_missing=False))


def env_part(choice: str, env_id: object) -> str:
    """The env's part of a run's name: its choice, or with env=gym its id as a file name.

    `ALE/Pong-v5` becomes `ALE-Pong-v5`, and `my_envs:Corridor-v0` `my_envs-Corridor-v0`.
    """
    if choice != ANY_ENV or not isinstance(env_id, str) or not env_id:
        return choice
    return re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") or choice


def register_resolvers() -> None:
    """Makes `${border.…}` known to OmegaConf; repeating it changes nothing."""
    named = {"or": either, "env_name": env_name, "job_folder": job_folder}
    # OmegaConf 2.4 has another name for it, which means something else before.
    new = omegaconf.__version__ >= "2.4"
    register: Any = OmegaConf.register_resolver if new else OmegaConf.register_new_resolver
    for name, resolver in named.items():
        register(f"border.{name}", resolver, replace=True)


def escaped(text: str) -> str:
    """The text as OmegaConf must be given it where `${` in it means nothing."""
    return _OPENING.sub(lambda found: 2 * found[1] + r"\${", text)


def literal(value: Any) -> Any:
    """A value as OmegaConf can hold it: `${` is escaped, and a numpy scalar becomes a number.

    What needs no change is returned as the same object.
    """
    if type(value) is str:
        return escaped(value) if "${" in value else value
    numpy = sys.modules.get("numpy")  # importing it would slow down every answer
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, list | tuple):
        entries = [literal(each) for each in value]
        return entries if any(map(operator.is_not, entries, value)) else value
    settings = is_dataclass(value) and not isinstance(value, type)
    if not settings and not isinstance(value, dict):
        return value
    before = value
    if settings:
        before = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    after = {name: literal(each) for name, each in before.items()}
    if not any(after[name] is not each for name, each in before.items()):
        return value
    return replace(value, **after) if settings else after


def resolve_settings(config: DictConfig) -> None:
    """Replaces every interpolation outside `hydra` by its value.

    `${hydra:x}` reads a singleton, which may belong to another app; `${hydra.x}` reads this
    composition. So the former is rewritten first.
    """
    localise(config)
    for key in [str(each) for each in config if each != "hydra"]:
        _resolve(config, key)


def _resolve(node: Any, key: Any) -> None:
    """As `OmegaConf.resolve`, which would take what comes out of `\\${x}` for one more `${x}`."""
    if OmegaConf.is_interpolation(node, key):
        value = node[key]
        node[key] = escaped(value) if isinstance(value, str) else value
    child = node._get_node(key)
    if isinstance(child, DictConfig | ListConfig) and isinstance(child._content, dict | list):
        keys = list(range(len(child))) if isinstance(child, ListConfig) else list(child)
        for each in keys:
            _resolve(child, each)


def localise(node: Any) -> None:
    """Rewrites `${hydra:x}` to `${hydra.x}`."""
    if isinstance(node, DictConfig | ListConfig) and isinstance(node._content, dict | list):
        for child in _children(node):
            localise(child)
    elif node is not None and isinstance(node._value(), str) and "${hydra:" in node._value():
        node._set_value(_HYDRA_VALUE.sub(r"${hydra.\1}", node._value()))


def _children(node: DictConfig | ListConfig) -> list[Any]:
    if isinstance(node, ListConfig):
        return [node._get_node(index) for index in range(len(node))]
    return [node._get_node(key) for key in node]
