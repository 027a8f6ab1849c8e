"""What wrappers that normalise have learned: it outlives episodes, so no replay brings it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from border_cli.core.types import State

Normalizer: TypeAlias = NormalizeObservation[Any, Any, Any] | NormalizeReward[Any, Any]


def normalizers(env: gym.Env[Any, Any]) -> list[Normalizer]:
    """The wrappers around `env` that keep running statistics, the outermost first."""
    # By their classes: a look at vars(env) would make every step slower from then on, because
    # Python then keeps the attributes in a dictionary.
    found: list[Normalizer] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, NormalizeObservation | NormalizeReward):
            found.append(env)
        env = env.env
    return found


def learned(wrappers: Sequence[Normalizer]) -> list[State]:
    """Copies of what they know now."""
    return [_learned(each) for each in wrappers]


def _learned(wrapper: Normalizer) -> State:
    known = _statistics(wrapper)
    state: State = {
        "mean": np.array(known.mean),
        "var": np.array(known.var),
        "count": float(known.count),
    }
    if isinstance(wrapper, NormalizeReward):  # its running return goes on where a time limit cuts
        state["discounted_reward"] = np.array(wrapper.discounted_reward)
    return state


def relearn(wrappers: Sequence[Normalizer], states: Sequence[Mapping[str, Any]]) -> None:
    """Sets them to what `learned` gave."""
    for wrapper, state in zip(wrappers, states, strict=True):
        known = _statistics(wrapper)
        known.mean, known.var = np.array(state["mean"]), np.array(state["var"])
        known.count = state["count"]
        if isinstance(wrapper, NormalizeReward):
            wrapper.discounted_reward = np.array(state["discounted_reward"])


def _statistics(wrapper: Normalizer) -> Any:
    return wrapper.obs_rms if isinstance(wrapper, NormalizeObservation) else wrapper.return_rms
