"""One Gymnasium environment inside its wrappers, from its settings."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium import wrappers as gym_wrappers

from border_cli.env.config import GymConfig
from border_cli.env.registered import (
    entry_of,
    import_named,
    missing_packages,
)
from border_cli.errors import ConfigError
from border_cli.words import unknown

# Wrappers for what agents do themselves, with one set of statistics that is saved with the model.
SETTING_INSTEAD = {
    "NormalizeObservation": "agent.normalize_obs",
    "NormalizeReward": "agent.normalize_reward",
}

# Physics engines load shared libraries and set global state: one constructor at a time. Reentrant:
# an environment may construct another, as one that plays against a saved policy does.
_constructing = threading.RLock()


@contextmanager
def construction(config: GymConfig) -> Iterator[None]:
    """The only block in which environments are constructed, one at a time."""
    with _constructing, _without_noise(), missing_packages(f"env.id={config.id}"):
        yield


def construct(config: GymConfig, render: str | None = None) -> gym.Env[Any, Any]:
    """A new environment inside its wrappers, not reset. Waits while another one is constructed."""
    with construction(config):
        return apply_wrappers(_construct_unwrapped(config, render), config.wrappers)


def time_limit(config: GymConfig, env: gym.Env[Any, Any]) -> int | None:
    """The env steps after which an episode is truncated; None where it need not end."""
    if config.max_episode_steps is not None:
        return config.max_episode_steps
    inside = (each for each in layers(env) if isinstance(each, gym_wrappers.TimeLimit))
    return min((each._max_episode_steps for each in inside), default=None)


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """The wrappers around an environment, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def stacks_images(env: gym.Env[Any, Any]) -> bool:
    """Whether observations are made of successive images, uint8 [frames, H, W]: by a wrapper, or by
    an environment that says so with `stacks_frames = True`."""
    space = env.observation_space
    if not isinstance(space, gym.spaces.Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return False
    if getattr(env.unwrapped, "stacks_frames", False) is True:
        return True
    stacks = (each for each in layers(env) if isinstance(each, gym_wrappers.FrameStackObservation))
    return any(each.stack_size == space.shape[0] > 1 for each in stacks)


def _construct_unwrapped(config: GymConfig, render: str | None) -> gym.Env[Any, Any]:
    spec = entry_of(config)
    kwargs = config.arguments()
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
            f"env.kwargs {config.kwargs} is not accepted by {spec.id}: {error.__cause__ or error}"
        ) from error
    if own_limit is not None and env.unwrapped.spec is not None:
        env.unwrapped.spec.max_episode_steps = own_limit  # TimeAwareObservation reads it there
    return env


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silences warnings that the user of an environment cannot act on.

    Box2D's SWIG half even crashes the interpreter where its DeprecationWarnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        # Vector environments without a mode are not used.
        warnings.filterwarnings("ignore", message=".*(AutoresetMode|autoreset_mode)")
        yield


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


def _wrapper(where: str, name: str) -> type[gym.Wrapper[Any, Any, Any, Any]]:
    """The class that a name in gymnasium.wrappers means, or `module:Class` of the user's own."""
    module, colon, own = name.rpartition(":")
    home: Any = import_named(module, f"{where}={name}") if colon else gym_wrappers
    found = getattr(home, own, None)  # Gymnasium imports some of its own only now
    if isinstance(found, type) and issubclass(found, gym.Wrapper):
        return found
    known = [
        key
        for key, each in vars(home).items()
        if isinstance(each, type) and issubclass(each, gym.Wrapper)
    ]
    raise ConfigError(f"{where}: {unknown(f'wrapper of {home.__name__}', own, sorted(known))}")
