"""One Gymnasium environment from its settings; what cannot work is refused in the user's words."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import gymnasium as gym
from gymnasium.envs import registration

from border_cli.core.errors import ConfigError, MissingPackage, did_you_mean
from border_cli.env.config import GymConfig
from border_cli.env.wrappers import apply_wrappers

PACKAGES = {  # module -> what pip calls it
    "Box2D": "gymnasium[box2d]",
    "pygame": "gymnasium[classic-control]",
    "ale_py": "ale-py",
    "cv2": "opencv-python",
}

# Physics engines load shared libraries and set global state: one constructor at a time. The lock
# starts no thread; whoever owns the threads need not know about it.
_constructing = Lock()


def construct(config: GymConfig, render: str | None = None) -> gym.Env[Any, Any]:
    """A new environment inside its wrappers, not reset. Waits while another one is constructed."""
    with _constructing, _without_noise(), missing_packages(f"env.id={config.id}"):
        env = _construct_unwrapped(config, render)
        try:
            return apply_wrappers(env, config.wrappers)
        except BaseException:
            env.close()
            raise


def time_limit(config: GymConfig, env: gym.Env[Any, Any]) -> int | None:
    """The env steps after which an episode is truncated; None where it need not end."""
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    return min(limits, default=None)


@contextmanager
def missing_packages(what: str) -> Iterator[None]:
    """Turns the failure to import somebody else's package into the line that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not _is_absent(error.name):
            raise  # a mistake inside a package that is there
        raise _missing(what, str(error.name)) from error
    except gym.error.DependencyNotInstalled as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and _is_absent(cause.name):
            raise _missing(what, str(cause.name)) from error
        named = re.search(r"gymnasium\[[\w-]+\]", str(error))
        if named and cause is None:
            raise MissingPackage(what, named[0]) from error
        raise ConfigError(f"{what}: {error}" + (f" ({cause})" if cause else "")) from error


def _is_absent(module: str | None) -> bool:
    if module is None:
        return False
    top = module.partition(".")[0]
    return sys.modules.get(top) is None and importlib.util.find_spec(top) is None


def _missing(what: str, module: str) -> MissingPackage:
    top = module.partition(".")[0]
    return MissingPackage(what, PACKAGES.get(top, top))


def _construct_unwrapped(config: GymConfig, render: str | None) -> gym.Env[Any, Any]:
    spec = _registered(config.id)
    creator = _creator(spec)
    kwargs = copy.deepcopy(config.kwargs)
    if render is not None:
        kwargs["render_mode"] = render
    # Our own limit counts actions outside all wrappers, so the environment's own is left away.
    own_limit = config.max_episode_steps
    no_limit = None if own_limit is None else -1
    try:
        env = gym.make(spec, max_episode_steps=no_limit, disable_env_checker=True, **kwargs)
    except TypeError as error:
        if not config.kwargs:
            raise
        raise ConfigError(
            f"env.kwargs {config.kwargs} was refused by {spec.id}: {error.__cause__ or error}"
            f"{_accepted(creator)}"
        ) from error
    if own_limit is not None and env.unwrapped.spec is not None:
        env.unwrapped.spec.max_episode_steps = own_limit  # TimeAwareObservation reads it there
    return env


def _registered(env_id: str | None) -> registration.EnvSpec:
    """What Gymnasium knows of the id. Unlike its own look-up, no warning that v2 exists as well."""
    if env_id is None:
        raise ConfigError("env.id must be set: a Gymnasium id such as CartPole-v1, or module:Id-v0")
    module, _, name = env_id.rpartition(":")
    if module:
        _import_named(module, env_id)
    if name in registration.registry:
        return registration.registry[name]
    newest = _newest_version(name)
    if newest is not None:
        return newest
    hint = did_you_mean(name, registration.registry)
    raise ConfigError(
        f"env.id={env_id} is not registered with Gymnasium{hint} (an environment of another "
        f"package: imports=[its_module], or env.id=its_module:{name})"
    )


def _import_named(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        itself = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if not itself or error.name in PACKAGES:
            raise  # it is there and lacks a package, or is one that we know
        raise ConfigError(
            f"env.id={env_id}: there is no module {error.name!r} to import; the part before "
            "the colon must be on the Python path"
        ) from error


def _newest_version(name: str) -> registration.EnvSpec | None:
    try:
        namespace, plain, version = registration.parse_env_id(name)
    except gym.error.Error:
        return None  # not even the form of an id: the caller refuses it
    if version is not None:
        return None
    newest = registration.find_highest_version(namespace, plain)
    if newest is None:
        return None
    return registration.registry[registration.get_env_id(namespace, plain, newest)]


def _creator(spec: registration.EnvSpec) -> Any:
    """The class or function that makes the environment; its module is imported here."""
    if isinstance(spec.entry_point, str):
        return registration.load_env_creator(spec.entry_point)
    return spec.entry_point


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silences what a user of somebody else's environment can do nothing about.

    Box2D's SWIG half even crashes the interpreter where its DeprecationWarnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield


def _accepted(creator: Any) -> str:
    try:
        parameters = inspect.signature(creator).parameters
    except (TypeError, ValueError):
        return ""  # written in C: the message of the constructor has to do
    names = [name for name in parameters if name not in ("self", "args", "kwargs", "render_mode")]
    return f" (it takes: {', '.join(names) or 'nothing'})"
