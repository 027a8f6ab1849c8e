"""Facts about a Gymnasium environment: numbers in `info`, vector implementation, and the verdict of
Gymnasium's own checker."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import gymnasium as gym
from gymnasium.utils.env_checker import check_env

from border_cli.core.spaces import EnvSpec
from border_cli.env.config import GymConfig, Vectorization
from border_cli.env.construct import construct
from border_cli.env.gym_env import GymEnv
from border_cli.env.step_results import info_values
from border_cli.env.vector import NoVectorEnv, construct_vector

_STYLE = re.compile(r"\x1b\[[0-9;]*m")  # colours of Gymnasium's warnings


class InfoRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Collects the names of the numbers in the `info` of steps."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.names: set[str] = set()

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        info = result[4] if isinstance(result[4], Mapping) else {}
        self.names |= {name for name in info if not math.isnan(*info_values(info, [name]))}
        return result


def record_info(env: GymEnv) -> InfoRecorder:
    """Wraps the single environment, to record its `info` as it is stepped."""
    recorder = env.envs[0] = InfoRecorder(env.envs[0])
    return recorder


def vector_implementation(config: GymConfig, spec: EnvSpec) -> str:
    """Returns which implementation steps several environments of one actor, and why."""
    if config.vectorization != Vectorization.auto:
        return f"env.vectorization={config.vectorization}"
    try:
        construct_vector(replace(config, num_envs=2), lambda: spec).close()
    except NoVectorEnv as reason:
        return f"one by one ({reason})"
    return "its own vector implementation, or one by one in bit-reproducible runs"


def complaints(config: GymConfig) -> list[str]:
    """Returns what Gymnasium's `check_env` objects to, the failed check last."""
    with closing(construct(config)) as env, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except Exception as error:  # environments may raise anything
            warnings.warn(f"{type(error).__name__}: {error}", stacklevel=1)
    texts = [str(warning.message) for warning in caught if warning.category is UserWarning]
    return list(dict.fromkeys(_first_line(text) for text in texts))


def _first_line(text: str) -> str:
    return _STYLE.sub("", text).removeprefix("WARN: ").strip().partition("\n")[0]
