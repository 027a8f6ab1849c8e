"""An environment's own vector implementation, where it has one that does what the settings ask."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registered

from border_cli.core.spaces import BoxSpace, DictSpace, EnvSpec, Space
from border_cli.env.config import GymConfig
from border_cli.env.construct import construction
from border_cli.env.registered import creator, parameters_of, refused_kwargs, registered
from border_cli.env.spaces import action_space, observation_space

Vector = gym.vector.VectorEnv[Any, Any, Any]


class Autoreset(StrEnum):
    """When a vector environment begins the next episode; Gymnasium's own values."""

    next_step = "NextStep"
    same_step = "SameStep"
    disabled = "Disabled"


class Unfit(Exception):
    """The environment has no vector implementation that does what the settings ask; says why."""


def vector_entry(config: GymConfig) -> Registered:
    """What is registered of an environment with a vector implementation; raises `Unfit`."""
    with construction(config):
        entry = registered(config.id)
    if entry.vector_entry_point is None:
        raise Unfit("there is none")
    if config.wrappers or entry.additional_wrappers:
        raise Unfit("wrappers apply to single environments only")
    return entry


def construct_vector(
    config: GymConfig, entry: Registered, spec: EnvSpec
) -> tuple[Vector, Autoreset]:
    """A new vector environment, not reset, and how it resets.

    Raises `Unfit` where nothing but stepping single environments gives what `spec` promises.
    Waits while another environment is constructed.
    """
    with construction(config), _without_mode_warnings():
        constructor = creator(entry.vector_entry_point)
        limits = _takes_limit(config, spec, constructor)
        env = _construct(config, spec, entry, constructor, limits)
        try:
            return env, _check(env, spec, limits)
        except BaseException:
            env.close()
            raise


def _takes_limit(config: GymConfig, spec: EnvSpec, constructor: Any) -> bool:
    """Whether the constructor takes the time limit; refuses what it does not take by its name."""
    parameters = parameters_of(constructor)
    if parameters is None:
        raise Unfit("the arguments of its constructor are unknown")
    any_name = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    strange = [name for name in config.kwargs if name not in parameters]
    if strange and not any_name:
        raise Unfit(f"it does not accept {', '.join(strange)} of env.kwargs")
    limit = parameters.get("max_episode_steps")
    if spec.max_episode_steps is None and limit is not None and limit.default is not None:
        raise Unfit("it truncates episodes, unlike a single environment")
    return limit is not None


def _construct(
    config: GymConfig, spec: EnvSpec, entry: Registered, constructor: Any, limits: bool
) -> Vector:
    entry = copy.copy(entry)
    # Given here or not at all: Gymnasium would hand the registered one also to who takes none.
    entry.max_episode_steps = spec.max_episode_steps if limits else None
    kwargs = copy.deepcopy(config.kwargs)
    try:
        return gym.make_vec(entry, config.num_envs, "vector_entry_point", **kwargs)
    except TypeError as error:
        if not config.kwargs:
            raise
        raise refused_kwargs(config.kwargs, entry.id, constructor, error) from error


def _check(env: Vector, spec: EnvSpec, limits: bool) -> Autoreset:
    """How it resets, once it is sure that it gives what single environments give."""
    told = env.metadata.get("autoreset_mode")
    try:
        mode = Autoreset(str(getattr(told, "value", told)))
    except ValueError as error:
        raise Unfit(f"unknown autoreset mode {told!r}") from error
    if spec.max_episode_steps is not None and not limits and mode is not Autoreset.disabled:
        raise Unfit("it does not accept max_episode_steps")
    single_observation, single_action = env.single_observation_space, env.single_action_space
    if not _same(spec.observation, observation_space(single_observation, spec.id)):
        raise Unfit(
            f"its observation space {single_observation} differs from a single environment's"
        )
    if not _same(spec.action, action_space(single_action, spec.id)):
        raise Unfit(f"its action space {single_action} differs from a single environment's")
    return mode


def _same(one: Space, other: Space) -> bool:
    if isinstance(one, DictSpace) and isinstance(other, DictSpace):
        pairs = zip(one.spaces.values(), other.spaces.values(), strict=True)
        return list(one.spaces) == list(other.spaces) and all(_same(*pair) for pair in pairs)
    if isinstance(one, BoxSpace) and isinstance(other, BoxSpace):
        layout = (one.shape, one.dtype) == (other.shape, other.dtype)
        return layout and all(
            np.array_equal(mine, its)
            for mine, its in ((one.low, other.low), (one.high, other.high))
        )
    return type(one) is type(other) and one == other


@contextmanager
def _without_mode_warnings() -> Iterator[None]:
    """Silences Gymnasium on metadata that `_check` reads and judges itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(AutoresetMode|autoreset_mode)")
        yield
