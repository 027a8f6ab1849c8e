"""Atari games: single environments compared with ALE's vector environment, and refused settings.

Tests that play need the extra `atari`.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from border_cli.core.interfaces import Env
from border_cli.env.config import AtariConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv
from border_cli.errors import ConfigError, MissingPackage

N = 3


def atari() -> Any:
    pytest.importorskip("ale_py")
    from border_cli.env import atari

    return atari


def make(training: bool = True, **settings: Any) -> Env:
    atari()
    return GymEnvFactory(AtariConfig(**settings)).make(training=training)


def same_rows(game: str, steps: int, limit: int = 27_000, **settings: Any) -> tuple[int, int]:
    """Steps both with the same seeds and actions; returns how many lives and games ended."""
    module = atari()
    games = module.AtariGames(N, game=game, max_episode_steps=limit, num_threads=1, **settings)
    singles = [module.AtariGame(game, max_game_steps=limit, **settings) for _ in range(N)]
    obs, _ = games.reset(seed=11)
    np.testing.assert_array_equal(
        obs, [single.reset(seed=11 + i)[0] for i, single in enumerate(singles)]
    )
    rng, ended, lives, over = np.random.default_rng(0), np.zeros(N, bool), 0, 0
    for _ in range(steps):
        actions = rng.integers(games.single_action_space.n, size=N)
        obs, *outcomes, _ = games.step(actions)
        for i, single in enumerate(singles):
            if ended[i]:  # the vector environment resets and ignores the action
                lives, over = lives + single.goes_on, over + (not single.goes_on)
                row, _ = single.reset()
                ended[i] = False
            else:
                row, reward, terminated, truncated, _ = single.step(actions[i])
                assert [values[i] for values in outcomes] == [reward, terminated, truncated]
                ended[i] = terminated or truncated
            np.testing.assert_array_equal(obs[i], row)
    games.close()
    return lives, over


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_the_vector_environment_has_the_rows_of_single_ones(sticky: float) -> None:
    lives, games = same_rows(
        "breakout", 400, episodic_life=True, clip_rewards=True, repeat_action_probability=sticky
    )
    assert min(lives, games) > 2


@pytest.mark.slow
def test_no_image_of_a_step_is_written_again() -> None:
    env = make(game="breakout", num_envs=N, num_threads=1)
    env.reset(0)
    images, copies = [], []
    for t in range(300):  # several lives, with automatic resets
        step = env.step(np.full(N, t % 4))
        images.append(step.next_obs)
        copies.append(np.array(step.next_obs))
    env.close()
    np.testing.assert_array_equal(images, copies)
    assert not any(np.shares_memory(a, b) for a, b in pairwise(images))


@pytest.mark.slow
def test_a_game_goes_on_after_a_life_and_begins_anew_after_the_last() -> None:
    game = atari().AtariGame("breakout", max_game_steps=27_000, episodic_life=True)
    game.reset(seed=3)
    lives = []
    while len(lives) < 6:
        _, _, terminated, _, info = game.step(np.int64(0 if len(lives) % 2 else 2))
        if terminated:
            lives.append(info["lives"])
            game.reset(seed=3)
    assert lives == [4, 3, 2, 1, 0, 4]


@pytest.mark.slow
def test_an_actor_has_the_vector_environment_and_its_evaluation_single_ones() -> None:
    training, played = make(game="pong", num_envs=2), make(False, game="pong", num_envs=2)
    assert (type(training), type(played)) == (GymVectorEnv, GymEnv)
    training.close()
    played.close()


@pytest.mark.slow
def test_evaluations_are_whole_games_with_their_own_rewards() -> None:
    training, played = make(game="breakout"), make(False, game="breakout")
    lengths = []
    for env in (training, played):
        env.reset(0)
        length = 1
        while not env.step(np.array([1])).episodes:
            length += 1
        lengths.append(length)
        env.close()
    assert lengths[1] > 3 * lengths[0]


@pytest.mark.slow
@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_a_life_that_goes_on_is_replayed_with_its_game(sticky: float) -> None:
    settings = {"game": "breakout", "repeat_action_probability": sticky}
    env, resumed = make(**settings), make(**settings)
    env.reset(5)
    rng = np.random.default_rng(1)
    lives = 0
    while lives < 2:  # the current life is the third one or belongs to a later game
        lives += len(env.step(rng.integers(4, size=1)).episodes)
    for _ in range(3):
        env.step(rng.integers(4, size=1))
    state = env.state_dict()
    obs, restarted = resumed.resume(5, state)
    assert restarted == []
    np.testing.assert_array_equal(obs, state["obs"])
    for _ in range(120):
        action = rng.integers(4, size=1)
        step, resumed_step = env.step(action), resumed.step(action)
        np.testing.assert_array_equal(step.act_obs, resumed_step.act_obs)
        assert (step.reward, step.terminated, step.episodes) == (
            resumed_step.reward,
            resumed_step.terminated,
            resumed_step.episodes,
        )
    env.close()
    resumed.close()


@pytest.mark.slow
def test_areas_are_averaged_as_ale_averages_them() -> None:
    shrink = atari().Shrink((210, 160))
    image = np.zeros((210, 160), np.uint8)
    image[:5, :2] = 200  # an output pixel covers 2.5 lines and 40 / 21 columns
    small = shrink(image)
    assert small.shape == (84, 84)
    assert small[:3, :3].tolist() == [[200, 10, 0], [200, 10, 0], [0, 0, 0]]


@pytest.mark.slow
def test_an_unknown_game_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^env\.game: unknown game 'pon', did you mean pong\?"):
        make(game="pon")
    with pytest.raises(ConfigError, match=r"^env\.game: unknown game 'warlords'"):
        make(game="warlords")


def test_without_the_extra_the_line_that_installs_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "border_cli.env.atari", raising=False)
    with pytest.raises(MissingPackage, match=r'^env\.id=atari/pong needs .*"border-cli\[atari\]"$'):
        GymEnvFactory(AtariConfig(game="pong")).make(training=True)


def test_the_game_names_the_environment_and_nothing_else_does() -> None:
    assert AtariConfig(game="pong").id == "atari/pong"
    assert AtariConfig().id is None
    with pytest.raises(ConfigError, match=r"^env\.id must be null: env\.game names the game, got"):
        AtariConfig(game="pong", id="ALE/Pong-v5")


def test_scores_are_normalized_by_those_of_random_actions_and_a_human() -> None:
    assert AtariConfig(game="pong").human_scores == (-20.7, 14.6)
    assert AtariConfig(game="tetris").human_scores is None
