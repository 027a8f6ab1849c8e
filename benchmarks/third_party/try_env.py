"""Constructs an environment, applies Gymnasium's check_env and plays random actions. Runs in the
virtual environment of a package.

    python -m benchmarks.third_party.try_env '{"id": …, "imports": […], "kwargs": {…}}' OUT.json
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

STEPS, MOST_S = 50, 5.0  # of random actions
MOST_CHARACTERS = 400  # of a message


def main() -> None:
    recipe, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    facts: dict[str, Any] = {}

    def note(**more: Any) -> None:
        facts.update(more)
        out.write_text(json.dumps(facts))

    env = make(recipe)
    note(**describe(env))
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
            note(check_env="passes")
        except BaseException as error:  # environments may raise anything
            lines = str(error).strip().splitlines()
            note(check_env=f"{type(error).__name__}: {lines[0] if lines else ''}")
        try:
            play(env)
            note(random_steps="passes")
        except BaseException as error:
            note(random_steps=f"{type(error).__name__}: {error}"[:MOST_CHARACTERS])
    note(warnings=len(noted))


def make(recipe: Any, **more: Any) -> gym.Env[Any, Any]:
    """Constructs the environment of an id, or of module:Class, as a user of Gymnasium would."""
    for name in recipe["imports"]:
        importlib.import_module(name)
    module, _, name = recipe["id"].rpartition(":")
    home = importlib.import_module(module) if module else None
    if name not in gym.registry and hasattr(home, name):
        env: gym.Env[Any, Any] = getattr(home, name)(**recipe["kwargs"])
        return env
    return gym.make(name, disable_env_checker=True, **recipe["kwargs"], **more)


def play(env: gym.Env[Any, Any]) -> None:
    """Plays random actions, to see whether an environment works without border_cli."""
    env.action_space.seed(0)
    env.reset(seed=0)
    ends_s = time.monotonic() + MOST_S
    for _ in range(STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
        if time.monotonic() > ends_s:
            break


def describe(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Returns what the choice of agent and settings needs to know."""
    observation, action = env.observation_space, env.action_space
    parts = list(observation.spaces.values()) if isinstance(observation, spaces.Dict) else []
    rewards = getattr(env.unwrapped, "reward_space", None)
    return {
        "observation": str(observation)[:200],
        "action": str(action)[:200],
        "action_kind": type(action).__name__,
        "bounded": isinstance(action, spaces.Box)
        and bool(np.isfinite(action.low).all() and np.isfinite(action.high).all()),
        "pictures_in_dict": any(is_picture(part) for part in parts),
        "nested": isinstance(observation, spaces.Tuple)
        or any(isinstance(part, spaces.Dict | spaces.Tuple) for part in parts),
        "num_rewards": rewards.shape[0] if isinstance(rewards, spaces.Box) and rewards.shape else 1,
    }


def is_picture(space: gym.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


if __name__ == "__main__":
    main()
