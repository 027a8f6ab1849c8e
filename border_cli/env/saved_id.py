"""The check of `env.id` in saved settings, which may call only constructors of environments."""

from __future__ import annotations

import inspect
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_origin, get_type_hints

import gymnasium as gym

from border_cli.env.config import GymConfig
from border_cli.env.construct import construction, import_named
from border_cli.errors import ConfigError
from border_cli.system.foreign import is_own

CALLERS = ("gymnasium", "border_cli")  # packages whose functions may import names in arguments


def refuse_saved_id(env_id: str, setting: str) -> None:
    """Raises ConfigError unless `module:name`, the value of `setting`, constructs environments.

    Allowed are ids registered with Gymnasium, classes of environments, functions in the user's own
    files, and functions of installed packages annotated to return an environment. Imports the
    module.
    """
    module, _, name = env_id.rpartition(":")
    with construction(GymConfig(id=env_id)):
        home = import_named(module, f"{setting}={env_id}")
    value = getattr(home, name, None)
    if value is None or _is_environment(value) or _makes_environments(value, home):
        return  # None means a registered id, or a name that the constructor refuses
    raise ConfigError(
        f"{setting}={env_id} is not called: it is neither a class of environments nor a "
        "registered id, nor a function in your own files, nor a function of an installed package "
        "annotated to return a gymnasium.Env. If you trust it, type that setting "
        f"(border-eval RUN_DIR env.id={env_id}, resume=, --from), or trust=true"
    )


def _is_environment(value: Any) -> bool:
    """Returns whether a value is a class of environments, but not a wrapper."""
    kinds = (gym.Env, gym.vector.VectorEnv)
    return (
        isinstance(value, type) and issubclass(value, kinds) and not issubclass(value, gym.Wrapper)
    )


def _makes_environments(value: Any, home: ModuleType) -> bool:
    """Returns whether a value is a function of the user, or a function of the package of `home`
    annotated to return an environment."""
    function = inspect.unwrap(value) if callable(value) else None
    if not isinstance(function, FunctionType):
        return False
    if is_own(Path(function.__code__.co_filename)):
        return True
    package, expected = (name.partition(".")[0] for name in (function.__module__, home.__name__))
    return_type = None
    if package == expected and package not in CALLERS:
        with suppress(Exception):  # annotations may refer to names that do not exist
            return_type = get_type_hints(function).get("return")
    return _is_environment(get_origin(return_type) or return_type)
