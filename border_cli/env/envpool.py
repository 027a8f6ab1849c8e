"""EnvPool's C++ versions of Gymnasium's environments, as a Gymnasium vector environment."""

from __future__ import annotations

import re
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec as Registration
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from border_cli.core.spaces import DictSpace, EnvSpec
from border_cli.core.types import leaves
from border_cli.env.config import GymConfig
from border_cli.env.construct import construction, entry_of, missing_packages
from border_cli.errors import ConfigError

CHOSEN: Final = "env.vectorization=envpool"
SUITE: Final = "dm_control/"
MINIGRID: Final = "minigrid.envs"
# Constructors of the environments that were compared with EnvPool 1.2.5 (benchmarks/envpool.py).
COMPARED: Final = (
    r"gymnasium\.envs\.(classic_control|toy_text|box2d|mujoco)\.|minigrid\.envs[.:]"
    r"|.*\b_make_dm_control_suite_env\b.*\bdomain_name='(acrobot|ball_in_cup|cartpole|cheetah|finger"
    r"|hopper|humanoid|pendulum|point_mass|reacher|swimmer|walker)'"
)
POLES: Final = "begins with a tenth of the angle between its poles"
CARRYING: Final = "shows the carried object in first observations, where MiniGrid shows none"
# Differences that the comparison found.
DIFFERENCES: Final = {
    "Pendulum-v1": "moves the pendulum at speeds above 8",
    "CarRacing-v3": "draws different pixels",
    "Humanoid-v4": "observes no contact forces; Humanoid-v5 does",
    "HumanoidStandup-v4": "observes no contact forces; HumanoidStandup-v5 does",
    "BallInCupCatch-v1": "rewards the ball in a larger target",
    "CartpoleTwoPoles-v1": POLES,
    "CartpoleThreePoles-v1": POLES,
    "BabyAI-PutNextS5N2Carrying-v0": CARRYING,
    "BabyAI-PutNextS6N3Carrying-v0": CARRYING,
    "BabyAI-PutNextS7N4Carrying-v0": CARRYING,
}


def refuse_unsupported(config: GymConfig) -> None:
    """Raises ConfigError if EnvPool has no equal environment, or cannot follow the settings."""
    if config.entry_point is not None:
        config.refuse(
            "vectorization",
            "envpool",
            f"must be auto or sync with env.id={config.id}: EnvPool begins games and lives with "
            "other frames. With env.num_envs above 1, auto steps the games in ALE's own C++",
        )
    config.refuse_beside(
        [
            *("kwargs", "wrappers", "reward_weights", "action_mask", "own_generators"),
            *("resize", "grayscale", "frame_skip", "frame_stack"),
        ],
        f"cannot be set together with {CHOSEN}, which has no single environments in Python",
    )
    with missing_packages(CHOSEN):
        import envpool
    with construction(config):
        entry = entry_of(config)
        reason = _difference(entry, envpool.list_all_envs())
    if reason is not None:
        raise ConfigError(f"env.id={config.id} does not support {CHOSEN}: {reason}")


def _pool_id(env_id: str) -> str:
    """Returns EnvPool's id of an environment: CartpoleSwingup-v1 for Shimmy's
    dm_control/cartpole-swingup-v0; all others have one id in both libraries."""
    task = env_id.partition(SUITE)[2].removesuffix("-v0")
    name = re.sub("(^|[-_])(.)", lambda match: match[2].upper(), task)
    return f"{name}-v1" if name else env_id


def _difference(entry: Registration, ids: list[str]) -> str | None:
    """Returns how EnvPool's environment differs from Gymnasium's; None if they are equal."""
    pool_id = _pool_id(entry.id)
    if pool_id not in ids:
        name = pool_id.rpartition("-v")[0]
        versions = [other for other in ids if other.rpartition("-v")[0] == name]
        return f"EnvPool has no {pool_id}" + (f", only {', '.join(versions)}" if versions else "")
    if pool_id in DIFFERENCES:
        return f"EnvPool's {pool_id} {DIFFERENCES[pool_id]}"
    if not re.match(COMPARED, str(entry.entry_point)):
        return f"EnvPool's {pool_id} has not been compared step by step"
    return None


class PoolVector(gym.vector.VectorEnv[Any, Any, Any]):
    """N environments of EnvPool, constructed anew by each `reset` because EnvPool takes its seed in
    the constructor. Used by one thread.

    A step after an end only resets. EnvPool reports a termination in the step of its time limit as
    a truncation, so EnvPool gets a limit one step later, and this class truncates. MiniGrid's own
    limit is part of its rewards and cannot be moved: a failure in the step of the limit counts as
    truncated. The limit of dm_control is its own, too, and its episodes never terminate.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - declared as in Gymnasium
    returns_new_arrays = True

    def __init__(self, config: GymConfig, spec: EnvSpec) -> None:
        self._config = config
        entry = entry_of(config)
        self._pool_id = _pool_id(entry.id)
        self._limit = spec.max_episode_steps
        self._is_minigrid = str(entry.entry_point).startswith(MINIGRID)
        self._kwargs: dict[str, Any] = {"num_threads": config.num_threads or 1}
        if not (self._limit is None or self._is_minigrid or entry.id.startswith(SUITE)):
            self._kwargs["max_episode_steps"] = self._limit + 1
        space = spec.observation
        self._keys = list(space.spaces) if isinstance(space, DictSpace) else None
        self.num_envs = config.num_envs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts N new episodes. Environment i has the seed `seed + i`."""
        del options
        self._pool: Any = None  # ends the threads of the last one
        with construction(self._config):
            import envpool  # imported late: takes seconds

            self._pool = envpool.make_gymnasium(
                self._pool_id, num_envs=self.num_envs, seed=seed, **self._kwargs
            )
            obs, info = self._pool.reset()
        self._truncated = np.empty(0, np.int64)  # environments that `step` has to reset
        return self._select(obs), info

    def step(self, actions: NDArray[Any]) -> Any:
        """Acts in each environment whose episode has not ended in the last step."""
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        obs = self._select(obs)
        if len(self._truncated):  # EnvPool has stepped these beyond the limit
            first = self._select(self._pool.reset(self._truncated)[0])
            for part, first_part in zip(leaves(obs), leaves(first), strict=True):
                part[self._truncated] = first_part
            terminated[self._truncated] = truncated[self._truncated] = False
        if self._is_minigrid:  # only a termination has a reward
            terminated |= truncated & (reward != 0)
        at_limit = info["elapsed_step"] == self._limit  # [N] False if there is no limit
        self._truncated = np.flatnonzero(at_limit & ~(terminated | truncated))
        return obs, reward, terminated, truncated | at_limit, info

    def _select(self, obs: Any) -> Any:
        """Leaves out what single environments leave out, such as the text of MiniGrid's mission."""
        return obs if self._keys is None else {key: obs[key] for key in self._keys}

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads."""
        del kwargs
        self._pool = None
