"""The games of MinAtar as Gymnasium environments whose seeds determine the episodes.

Young and Tian 2019, "MinAtar: an Atari-inspired testbed for thorough and reproducible reinforcement
learning experiments". MinAtar's own environments carry the last action, which sticky actions
repeat, over to the next episode. They also take seconds to import, because of seaborn and scipy.
Only the games are loaded here; they need nothing but NumPy.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from border_cli.env.construct import MINATAR_GAMES
from border_cli.errors import ConfigError
from border_cli.words import unknown

PIXELS_PER_CELL = 16  # width and height of a cell in rendered frames


class Minatar(gym.Env[Any, np.int64]):
    """One game on a grid of 10 x 10 cells, with a channel for each kind of object."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        game: str,
        *,
        render_mode: str | None = None,
        use_minimal_action_set: bool = False,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
    ) -> None:
        self.render_mode = render_mode
        self._sticky_action_prob = sticky_action_prob
        self._game = _load_game(game).Env(ramping=difficulty_ramping)
        self._game.random = np.random.RandomState()
        self._last_action = 0
        actions = self._game.minimal_action_set() if use_minimal_action_set else range(6)
        self._actions = [int(action) for action in actions]  # available ones of MinAtar's six
        self.action_space = spaces.Discrete(len(self._actions))
        shape = tuple(self._game.state_shape())
        self.observation_space = spaces.Box(0, 1, shape, dtype=np.dtype(np.bool_))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._game.random = np.random.RandomState(seed % 2**32)
        self._last_action = 0
        self._game.reset()
        return self._game.state(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.bool_], float, bool, bool, dict[str, Any]]:
        if self._game.random.rand() >= self._sticky_action_prob:
            self._last_action = self._actions[action]
        reward, terminated = self._game.act(self._last_action)
        return self._game.state(), float(reward), bool(terminated), False, {}

    def render(self) -> NDArray[np.uint8]:
        """Draws each cell in the colour of its last object. [H, W, 3]"""
        state = self._game.state()  # [10, 10, objects]
        objects = state.shape[2]
        shown = np.max(state * np.arange(1, objects + 1), axis=2)  # [10, 10], 0 for empty cells
        cells: NDArray[np.uint8] = _make_colours(objects)[shown]  # [10, 10, 3]
        return cells.repeat(PIXELS_PER_CELL, axis=0).repeat(PIXELS_PER_CELL, axis=1)


def _load_game(game: str) -> ModuleType:
    """Loads the module of a game without the rest of MinAtar."""
    if game not in MINATAR_GAMES:
        raise ConfigError(unknown("game", game, MINATAR_GAMES))
    package = importlib.util.find_spec("minatar")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'minatar'", name="minatar")
    file = Path(package.origin).parent / "environments" / f"{game}.py"
    spec = importlib.util.spec_from_file_location(f"minatar.environments.{game}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _make_colours(objects: int) -> NDArray[np.uint8]:
    """Returns black and one colour per object, with different hues and increasing brightness.
    [1 + objects, 3]"""
    fraction = np.linspace(0, 1, objects)[:, None]  # [objects, 1]
    hue = 0.5 + 0.5 * np.cos(2 * np.pi * (fraction + np.array([0.0, 1 / 3, 2 / 3])))
    shades = 255 * (0.35 + 0.65 * fraction) * (0.4 + 0.6 * hue)
    return np.concatenate([np.zeros((1, 3)), shades]).astype(np.uint8)
