"""One Gymnasium environment from its settings; what cannot work is refused in the user's words."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium as gym

from border_cli.core.process_state import unchanged
from border_cli.env.config import GymConfig
from border_cli.env.missing import missing_packages
from border_cli.env.registered import creator, refused_kwargs, registered
from border_cli.env.wrappers import apply_wrappers

# Physics engines load shared libraries and set global state: one constructor at a time. The lock
# starts no thread; whoever owns the threads need not know about it. An environment may construct
# another, as one that plays against a saved policy does.
_constructing = threading.RLock()


@contextmanager
def construction(config: GymConfig) -> Iterator[None]:
    """The only block in which environments are constructed. Waits while another is under way.

    What a constructor changes of this process is put back.
    """
    who = f"env.id={config.id}"
    with _constructing, _without_noise(), unchanged(who), missing_packages(who):
        yield


@contextmanager
def starting(env_id: str) -> Iterator[None]:
    """The block in which first episodes begin; some environments set themselves up only then.

    What that changes of this process is put back where the main thread does it: others would have
    to take turns, and a first episode may take long.
    """
    who = f"env.id={env_id}"
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.enter_context(_constructing)
            stack.enter_context(unchanged(who))
        stack.enter_context(missing_packages(who))  # windows open with the first reset
        yield


def construct(config: GymConfig, render: str | None = None) -> gym.Env[Any, Any]:
    """A new environment inside its wrappers, not reset. Waits while another one is constructed."""
    with construction(config):
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


def _construct_unwrapped(config: GymConfig, render: str | None) -> gym.Env[Any, Any]:
    spec = registered(config.id)
    constructor = creator(spec.entry_point)
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
        raise refused_kwargs(config.kwargs, spec.id, constructor, error) from error
    if own_limit is not None and env.unwrapped.spec is not None:
        env.unwrapped.spec.max_episode_steps = own_limit  # TimeAwareObservation reads it there
    return env


@contextmanager
def _without_noise() -> Iterator[None]:
    """Silences what a user of somebody else's environment can do nothing about.

    Box2D's SWIG half even crashes the interpreter where its DeprecationWarnings are errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*precision lowered by casting")
        yield
