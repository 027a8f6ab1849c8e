"""What the `env.id` of a saved folder may call: environments, and functions that make them."""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_origin, get_type_hints

import gymnasium as gym
from gymnasium.envs import registration

from border_cli.env.config import GymConfig
from border_cli.env.construct import construction, import_named, with_version
from border_cli.errors import ConfigError
from border_cli.system.foreign import is_own

CALLERS = ("gymnasium", "border_cli")  # have functions that call what their arguments name


def refuse_saved_id(env_id: str, place: str) -> None:
    """Raises ConfigError unless `module:name` is an id that is registered with Gymnasium, a class
    of environments, a function in a file of the user's own, or a function of an installed package
    that is annotated to return an environment. Imports the module."""
    module, _, name = env_id.rpartition(":")
    with construction(GymConfig(id=env_id)):
        home = import_named(module, f"{place}.id={env_id}")
    with suppress(gym.error.Error):  # the name has no form of an id
        if with_version(name) in registration.registry:
            return
    named = getattr(home, name, None)
    if named is None or _is_environment(named) or _makes_environments(named, home):
        return  # the construction refuses what is not there
    raise ConfigError(
        f"{place}.id={env_id} is not called: it is neither a class of environments nor a "
        "registered id, nor a function in a file of yours, nor one of an installed package that "
        f"is annotated to return a gymnasium.Env. Where you trust it, type env.id={env_id} "
        "(border-eval, resume=, --from), or trust=true"
    )


def _is_environment(named: Any) -> bool:
    """Whether it is a class of environments. Wrappers, which are such classes, are none."""
    if not isinstance(named, type) or issubclass(named, gym.Wrapper):
        return False
    return issubclass(named, gym.Env | gym.vector.VectorEnv)


def _makes_environments(named: Any, home: ModuleType) -> bool:
    """Whether it is a function of the user's own, or of the package of `home`, annotated to return
    an environment."""
    function = inspect.unwrap(named) if isinstance(named, FunctionType) else None
    if not isinstance(function, FunctionType):
        return False
    file = Path(function.__code__.co_filename)
    if is_own(file):
        return True
    package = sys.modules[home.__name__.partition(".")[0]]
    folders = filter(None, [*getattr(package, "__path__", ()), package.__file__])
    own = any(file.is_relative_to(folder) for folder in folders)
    if not own or package.__name__ in CALLERS:
        return False
    with suppress(Exception):  # of annotations that cannot be evaluated
        returned = get_type_hints(function).get("return")
        return _is_environment(get_origin(returned) or returned)
    return False
