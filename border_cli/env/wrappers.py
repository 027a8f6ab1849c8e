"""Wrappers of Gymnasium by name, as `env.wrappers` lists them."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
from gymnasium import wrappers as gym_wrappers

from border_cli.core.errors import ConfigError
from border_cli.core.words import unknown
from border_cli.env.missing import missing_packages

# What agents do themselves, with one set of statistics that is saved with the model
SETTING_INSTEAD = {
    "NormalizeObservation": "agent.normalize_obs",
    "NormalizeReward": "agent.normalize_reward",
}


def normalizing(entries: list[Any]) -> dict[str, str]:
    """The wrappers with running statistics of their own, each with the setting to use instead."""
    names = [_name_and_arguments("env.wrappers", each)[0] for each in entries]
    return {name: SETTING_INSTEAD[name] for name in names if name in SETTING_INSTEAD}


def apply_wrappers(env: gym.Env[Any, Any], entries: list[Any]) -> gym.Env[Any, Any]:
    """`env` inside the wrappers, the first one innermost."""
    for place, entry in enumerate(entries):
        where = f"env.wrappers[{place}]"
        name, arguments = _name_and_arguments(where, entry)
        with missing_packages(f"{where} {name}"):
            wrapper = _wrapper(where, name)
            try:
                env = wrapper(env, **copy.deepcopy(arguments))
            except TypeError as error:
                raise ConfigError(f"{where} {name} cannot be created: {error}") from error
    return env


def _name_and_arguments(where: str, entry: object) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, dict) and len(entry) == 1:
        [(name, arguments)] = entry.items()
        if isinstance(name, str) and (arguments is None or isinstance(arguments, dict)):
            return name, arguments or {}
    raise ConfigError(f"{where} must be a name or {{Name: {{argument: value}}}}, got {entry!r}")


def _wrapper(where: str, name: str) -> Any:
    known = sorted(each for each in gym_wrappers.__all__ if each != "vector")  # a module
    if name not in known:
        raise ConfigError(f"{where}: {unknown('wrapper of gymnasium.wrappers', name, known)}")
    return getattr(gym_wrappers, name)
