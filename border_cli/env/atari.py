"""Games of the Arcade Learning Environment, with the preprocessing of the DQN papers.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods: each action is
repeated for four frames; the observation is a stack of the last four results, each the pixelwise
maximum of the last two frames in grayscale, scaled to 84 x 84. Games start with a random number of
no-ops. During training, each life is an episode and rewards are clipped. Sticky actions: Machado et
al. 2018, "Revisiting the Arcade Learning Environment". Games that have FIRE start with it.

`AtariGame` and `AtariGames` (ALE's own C++ vector environment) return the same frames, rewards and
ends for the same seeds and actions. After the loss of a life the game continues:
`reset` presses FIRE for one action, or NOOP if there is no FIRE. A new game starts after game over.
ALE's vector environment would start a new game after each life, so only first lives would be seen.
"""

from __future__ import annotations

import warnings
from math import ceil
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from border_cli.errors import ConfigError
from border_cli.words import unknown

with warnings.catch_warnings():  # ale_py adds its own filters
    import ale_py
    from ale_py import roms
    from ale_py.vector_env import AtariVectorEnv

FRAME_SKIP = 4  # frames per action
STACK = 4  # frames per observation
SIDE = 84  # width and height of a frame in pixels
MOST_NOOPS = 30  # exclusive maximum of no-op frames at the start of a game
SEVERAL_PLAYERS = ("combat", "joust", "maze_craze", "warlords")  # games that need an opponent

Info = dict[str, Any]


def rom_of(game: str) -> str:
    """Returns the ROM file of a game. Raises ConfigError with the nearest name if it is unknown."""
    games = sorted(set(roms.get_all_rom_ids()) - set(SEVERAL_PLAYERS))
    if game not in games:
        raise ConfigError(f"env.game: {unknown('game', game, games)}")
    return str(roms.get_rom_path(game))


class AtariGame(gym.Env[NDArray[np.uint8], np.int64]):
    """One game. Owns its emulator; used by one thread."""

    stacks_frames = True  # observations are successive images, the newest last

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        game: str,
        *,
        max_game_steps: int,
        episodic_life: bool = False,
        clip_rewards: bool = False,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self._rom = rom_of(game)
        self._limit = max_game_steps  # maximum number of steps of a whole game
        self._episodic_life = episodic_life
        self._clip_rewards = clip_rewards
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", repeat_action_probability)
        if render_mode == "human":
            self._ale.setBool("display_screen", True)
            self._ale.setBool("sound", True)
        self._ale.loadROM(self._rom)
        ale = self._ale
        self._actions = list(
            ale.getLegalActionSet() if full_action_space else ale.getMinimalActionSet()
        )
        self._start = _start_action(self._actions)
        self.action_space = spaces.Discrete(len(self._actions))
        self.observation_space = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        height, width = self._ale.getScreenDims()
        self._shrink = Shrink((height, width))
        self._screen = np.zeros((height, width), np.uint8)
        self._screen_before = np.zeros((height, width), np.uint8)
        self._stack = np.zeros((STACK, SIDE, SIDE), np.uint8)
        self._noops = np.random.RandomState()
        self._lives = self._steps = 0
        self.goes_on = False  # whether `reset` continues the game after the loss of a life

    def reset(
        self, *, seed: int | None = None, options: Info | None = None
    ) -> tuple[NDArray[np.uint8], Info]:
        """Starts a new game. After the loss of a life, continues the game and ignores the seed."""
        super().reset(seed=seed, options=options)
        if not self.goes_on or not self._begin_life():
            self._begin_game(seed)
        self.goes_on = False
        return self._stack.copy(), self._make_info()

    def _begin_life(self) -> bool:
        """Starts the next life and returns whether the game can continue."""
        _, terminated, truncated = self._act(self._start)
        return not (terminated or truncated)

    def _begin_game(self, seed: int | None) -> None:
        ale = self._ale
        if seed is not None:
            seed %= 2**31
            ale.setInt("random_seed", seed)
            self._noops = np.random.RandomState(seed)
            ale.loadROM(self._rom)
        ale.reset_game()
        fires = self._actions[self._start] == ale_py.Action.FIRE
        if fires:
            ale.act(ale_py.Action.FIRE)
        for _ in range(_draw_below(self._noops, MOST_NOOPS) - fires):
            ale.act(ale_py.Action.NOOP)
            if ale.game_over():
                ale.reset_game()
        self._stack[:] = 0
        ale.getScreenGrayscale(self._screen)
        self._screen_before[:] = 0
        self._push_frame()
        self._lives, self._steps = ale.lives(), 0

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, Info]:
        reward, terminated, truncated = self._act(int(action))
        over = self._ale.game_over(with_truncation=False) or self._steps >= self._limit
        self.goes_on = terminated and not over
        if self._clip_rewards:
            reward = max(-1, min(1, reward))
        return self._stack.copy(), float(reward), terminated, truncated, self._make_info()

    def _act(self, action: int) -> tuple[int, bool, bool]:
        """Plays four frames. Returns the summed reward, terminated and truncated."""
        ale, reward, lost, over = self._ale, 0, False, False
        self._steps += 1
        for frame in range(FRAME_SKIP):
            reward += ale.act(self._actions[action])
            over = ale.game_over(with_truncation=False)
            lost = 0 < ale.lives() < self._lives
            if over or (frame == FRAME_SKIP - 1 and self._steps >= self._limit):
                break  # as in ALE, the screen is not updated
            if frame == FRAME_SKIP - 2:
                ale.getScreenGrayscale(self._screen_before)
            elif frame == FRAME_SKIP - 1:
                ale.getScreenGrayscale(self._screen)
        self._push_frame()
        self._lives = ale.lives()
        terminated = over or (self._episodic_life and lost)
        return reward, terminated, self._steps >= self._limit and not terminated

    def _push_frame(self) -> None:
        """Adds the maximum of the last two screens to the stack."""
        np.maximum(self._screen, self._screen_before, out=self._screen)
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._shrink(self._screen)

    def _make_info(self) -> Info:
        return {"lives": self._lives}

    def render(self) -> Any:
        """Returns the screen in colour. [210, 160, 3]"""
        return None if self.render_mode == "human" else self._ale.getScreenRGB()


class AtariGames(VectorEnv[Any, NDArray[np.int64], Any]):
    """N games in ALE's threads. After the end of an episode, the next step starts another one.

    The first games have consecutive seeds. Later games of an environment differ only in the number
    of no-ops, which its own generator draws.
    """

    returns_new_arrays = True  # arrays of observations are never reused, so callers need no copy

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's

    def __init__(
        self,
        num_envs: int,
        *,
        game: str,
        max_episode_steps: int,
        num_threads: int = 1,
        episodic_life: bool = False,
        clip_rewards: bool = False,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
    ) -> None:
        rom_of(game)
        self._games = AtariVectorEnv(
            game,
            num_envs,
            num_threads=num_threads,
            max_num_frames_per_episode=max_episode_steps * FRAME_SKIP,
            repeat_action_probability=repeat_action_probability,
            full_action_space=full_action_space,
            life_loss_info=episodic_life,
            reward_clipping=clip_rewards,
            noop_max=MOST_NOOPS,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )
        self.num_envs = num_envs
        self.observation_space = self._games.observation_space
        self.single_observation_space = self._games.single_observation_space
        self.action_space = self._games.action_space
        self.single_action_space = self._games.single_action_space
        self._start = _start_action(self._games.ale.get_action_set())
        self._ended = np.zeros(num_envs, np.bool_)  # [N] episodes that ended in the last step

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Info | None = None
    ) -> tuple[Any, Info]:
        self._ended[:] = False
        result: tuple[Any, Info] = self._games.reset(seed=seed, options=options)
        return result

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, Any, Any, Any, Info]:
        """Plays one action in each game. After an episode, starts the next life or game instead."""
        starting = self._ended
        if starting.any():
            actions = np.where(starting, self._start, actions)
        obs, reward, terminated, truncated, info = self._games.step(actions)
        self._ended = terminated | truncated
        lost = starting & self._ended
        if lost.any():  # the new life has already ended within its first action
            reset_obs, _ = self._games.reset(options={"reset_mask": lost})
            obs = np.where(lost[:, None, None, None], reset_obs, obs)
            self._ended &= ~lost
        return obs, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        self._games.close(**kwargs)


def _start_action(actions: list[Any]) -> int:
    """Returns the index of the action that starts a life: FIRE, or NOOP if there is no FIRE."""
    return actions.index(ale_py.Action.FIRE if ale_py.Action.FIRE in actions else actions[0])


def _draw_below(generator: np.random.RandomState, bound: int) -> int:
    """Draws an integer below `bound`, like GNU's `std::uniform_int_distribution`.

    Lemire 2019, "Fast random integer generation in an interval".
    """
    while True:
        product = int(generator.randint(0, 2**32, dtype=np.uint32)) * bound
        if product % 2**32 >= 2**32 % bound:
            return product >> 32


class Shrink:
    """Scales images by averaging areas, bit-identical to OpenCV's `INTER_AREA`, which ALE uses.

    The order of summation matters: first along rows from the left, then from the top.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        height, width = shape
        self._rows, self._row_weights = _areas(height)
        self._columns, self._column_weights = _areas(width)

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Scales an image. [height, width] -> [84, 84]"""
        across = _weighted_sum(image.astype(np.float32).T, self._columns, self._column_weights)
        down = _weighted_sum(across.T, self._rows, self._row_weights)
        return np.rint(down).astype(np.uint8)


def _weighted_sum(
    lines: NDArray[np.float32], indices: NDArray[np.intp], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Sums weighted lines. [lines, K] -> [84, K]"""
    total: NDArray[np.float32] = lines[indices[0]] * weights[0]
    for index, weight in zip(indices[1:], weights[1:], strict=True):
        total += lines[index] * weight
    return total


def _areas(pixels: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Returns the input pixels of each of the 84 output pixels, and their weights.

    [most, 84], [most, 84, 1]
    """
    scale = pixels / SIDE
    edges = np.arange(SIDE + 1) * scale
    low, high = edges[:-1], edges[1:]
    indices = np.floor(low).astype(np.intp) + np.arange(ceil(scale) + 1)[:, None]  # [most, 84]
    weights = (np.minimum(high, indices + 1) - np.maximum(low, indices)) / scale
    weights[weights <= 1e-9] = 0
    used = weights.any(axis=1)
    return np.minimum(indices, pixels - 1)[used], weights[used].astype(np.float32)[..., None]
