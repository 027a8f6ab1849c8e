"""What the `env.id` of a saved folder may call: environments, and functions that make them."""

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

CALLERS = ("gymnasium", "border_cli")  # packages with functions that import what arguments name


def refuse_saved_id(env_id: str, setting: str) -> None:
    """Raises ConfigError unless `module:name`, the value of a setting, makes environments.

    It may be an id that is registered with Gymnasium, a class of environments, a function in a
    file of the user's own, or one of an installed package that is annotated to return an
    environment. Imports the module.
    """
    module, _, name = env_id.rpartition(":")
    with construction(GymConfig(id=env_id)):
        home = import_named(module, f"{setting}={env_id}")
    named = getattr(home, name, None)
    if named is None or _is_environment(named) or _makes_environments(named, home):
        return  # None: a registered id, or one that the construction refuses
    raise ConfigError(
        f"{setting}={env_id} is not called: it is neither a class of environments nor a "
        "registered id, nor a function in a file of yours, nor one of an installed package that "
        "is annotated to return a gymnasium.Env. Where you trust it, type that setting "
        f"(border-eval RUN_DIR env.id={env_id}, resume=, --from), or trust=true"
    )


def _is_environment(named: Any) -> bool:
    """Whether it is a class of environments. Wrappers, which are such classes, are none."""
    kinds = (gym.Env, gym.vector.VectorEnv)
    return (
        isinstance(named, type) and issubclass(named, kinds) and not issubclass(named, gym.Wrapper)
    )


def _makes_environments(named: Any, home: ModuleType) -> bool:
    """Whether it is a function of the user's own, or of the package of `home`, annotated to return
    an environment."""
    function = inspect.unwrap(named) if callable(named) else None
    if not isinstance(function, FunctionType):
        return False
    if is_own(Path(function.__code__.co_filename)):
        return True
    package, own = (each.partition(".")[0] for each in (function.__module__, home.__name__))
    returned = None
    if package == own and package not in CALLERS:
        with suppress(Exception):  # of annotations that cannot be evaluated
            returned = get_type_hints(function).get("return")
    return _is_environment(get_origin(returned) or returned)
