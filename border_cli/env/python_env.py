"""Environments passed from Python, as a callable that returns a `gymnasium.Env`.

A class or function at the top level of an imported module becomes `module:name` in the settings, so
that every command finds it. Any other callable, such as one of `__main__`, gets an id that only
this process knows, and must be passed again to open the run. If two have the same name, the newer
one replaces the older.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gymnasium.envs import registration

from border_cli.env.config import GymConfig
from border_cli.env.construct import GIVEN, find_spec, portable
from border_cli.errors import ConfigError
from border_cli.settings.run import EnvConfig

MakeEnv = Callable[..., Any]  # takes env.kwargs


def with_python_env(settings: EnvConfig, make: MakeEnv) -> GymConfig:
    """Returns a copy of the settings for the environment that `make` constructs."""
    if type(settings) is not GymConfig:
        raise ConfigError(f"env=… needs settings of env=gym, got {type(settings).__name__}")
    if not callable(make):
        raise ConfigError(
            f"env must be a callable that returns a new gymnasium.Env, got {type(make).__name__}"
        )
    env_id = settings.id
    if env_id is None or not env_id.startswith(GIVEN):
        env_id = _import_name(make) or _make_id(make)
    if env_id.startswith(GIVEN):
        registration.registry[env_id] = registration.EnvSpec(env_id, make)
    return replace(settings, id=env_id)


def is_local(env_id: str | None) -> bool:
    """Returns whether only this process can construct the environment: it cannot be pickled."""
    return env_id is not None and env_id.startswith(GIVEN) and portable(env_id) is None


def _import_name(make: MakeEnv) -> str | None:
    """Returns `module:name` if it resolves to `make` itself, rather than to a registered
    environment with a limit or wrappers; else None."""
    module = getattr(make, "__module__", "__main__")
    env_id = f"{module}:{getattr(make, '__qualname__', '')}"
    if module == "__main__":
        return None
    try:
        spec = find_spec(env_id)
    except ConfigError:
        return None
    is_make = spec.entry_point is make and spec.id not in registration.registry
    return env_id if is_make else None


def _make_id(make: MakeEnv) -> str:
    name = getattr(make, "__name__", type(make).__name__)
    return GIVEN + re.sub(r"\W", "", name)
