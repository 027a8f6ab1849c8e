"""An environment with several levers to set at once, whose best score is known.

`imports=[levers] env.id=border/Levers-v0`, or `border/Switches-v0` for levers with two positions.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

STATES, STEPS = 5, 10
POSITIONS = (3, 4, 2)
BEST = float(STEPS)


class Levers(gym.Env[np.int64, NDArray[Any]]):
    """An environment of five states; in each state every lever has one right position.

    The reward is the fraction of levers that are right. The next state is reached only if all are
    right, so a single wrong lever hides all later states from an agent. Q(s, a) of the best policy
    is a sum over levers plus a constant.
    """

    def __init__(self, switches: bool = False) -> None:
        self.observation_space = gym.spaces.Discrete(STATES)
        self.positions = (2, 2, 2, 2) if switches else POSITIONS
        self.action_space = (
            gym.spaces.MultiBinary([2, 2]) if switches else gym.spaces.MultiDiscrete(POSITIONS)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.int64, Any]:
        super().reset(seed=seed, options=options)
        self.state = 0
        return np.int64(0), {}

    def step(self, action: NDArray[Any]) -> tuple[np.int64, float, bool, bool, Any]:
        assert action in self.action_space
        right = action.ravel() == best_action(self.state, self.positions)
        self.state = (self.state + bool(right.all())) % STATES
        return np.int64(self.state), float(right.mean()), False, False, {}


def best_action(state: int, positions: tuple[int, ...]) -> NDArray[np.int64]:
    """Returns the right positions in a state."""
    return np.array([(3 * state + lever) % n for lever, n in enumerate(positions)])


gym.register("border/Levers-v0", entry_point=Levers, max_episode_steps=STEPS)
gym.register(
    "border/Switches-v0",
    entry_point=Levers,
    max_episode_steps=STEPS,
    kwargs={"switches": True},
)
