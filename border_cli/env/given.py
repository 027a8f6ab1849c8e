"""Environments that a caller in Python gives: a callable that returns a `gymnasium.Env`.

A class or function at the top of a module is named `module:name` in the settings, so that every
command finds it. Any other has an id that only this process knows, and is given again to open the
run; of two with one name the newer counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gymnasium.envs import registration

from border_cli.env.config import GymConfig
from border_cli.env.construct import GIVEN, portable, registered
from border_cli.errors import ConfigError
from border_cli.settings.run import EnvConfig

MakeEnv = Callable[..., Any]  # takes env.kwargs


def with_given(settings: EnvConfig, make: MakeEnv) -> GymConfig:
    """The settings with this environment in the place of theirs."""
    if type(settings) is not GymConfig:
        raise ConfigError(f"env=… needs settings of env=gym, got {type(settings).__name__}")
    if not callable(make):
        raise ConfigError(
            f"env must be a callable that returns a new gymnasium.Env, got {type(make).__name__}"
        )
    env_id = settings.id
    if env_id is None or not env_id.startswith(GIVEN):
        env_id = _importable(make) or _own_id(make)
    if env_id.startswith(GIVEN):
        registration.registry[env_id] = registration.EnvSpec(env_id, make)
    return replace(settings, id=env_id)


def is_local(env_id: str | None) -> bool:
    """Whether only this process can construct it, because it cannot be pickled."""
    return env_id is not None and env_id.startswith(GIVEN) and portable(env_id) is None


def _importable(make: MakeEnv) -> str | None:
    """`module:name`, where that leads to it, and to no limit or wrapper that it has in Gymnasium's
    registry."""
    module = getattr(make, "__module__", "__main__")
    env_id = f"{module}:{getattr(make, '__qualname__', '')}"
    if module == "__main__":
        return None
    try:
        found = registered(env_id)
    except ConfigError:
        return None
    itself = found.entry_point is make and found.id not in registration.registry
    return env_id if itself else None


def _own_id(make: MakeEnv) -> str:
    name = getattr(make, "__name__", type(make).__name__)
    return GIVEN + re.sub(r"\W", "", name)
