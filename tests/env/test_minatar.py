"""MinAtar games. Tests that play need the extra `minatar`."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

from border_cli.env.config import GymConfig
from border_cli.env.construct import construct
from border_cli.env.gym import GymEnvFactory
from border_cli.errors import ConfigError, MissingPackage

GAMES = ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
installed = pytest.mark.skipif(
    importlib.util.find_spec("minatar") is None, reason="needs the extra minatar"
)


def play(env: Any, actions: list[int], seed: int) -> list[Any]:
    """Plays one episode; returns its observations, rewards and flags as bytes."""
    parts = [env.reset(seed=seed)[0]]
    for action in actions:
        obs, reward, terminated, _, _ = env.step(action)
        parts += [obs, reward, terminated]
        if terminated:
            break
    return [np.asarray(part).tobytes() for part in parts]


@installed
@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_an_episode_follows_from_its_seed_whatever_came_before(game: str) -> None:
    env = construct(GymConfig(id=f"MinAtar/{game}-v1"))
    count = int(env.action_space.n)  # type: ignore[attr-defined]
    actions = np.random.default_rng(0).integers(count, size=300).tolist()
    first = play(env, actions, seed=7)
    play(env, actions[::-1], seed=8)
    assert play(env, actions, seed=7) == first
    assert play(env, actions, seed=8) != first
    assert env.observation_space.shape[:2] == (10, 10)  # type: ignore[index]


@installed
@pytest.mark.slow
def test_v1_has_the_actions_that_do_something() -> None:
    counts = {}
    for version in ("v0", "v1"):
        env: Any = construct(GymConfig(id=f"MinAtar/Breakout-{version}"))
        counts[version] = env.action_space.n
        assert env.unwrapped.render().shape == (160, 160, 3)
    assert counts == {"v0": 6, "v1": 3}


@installed
@pytest.mark.slow
def test_seaborn_and_scipy_stay_away() -> None:
    before = set(sys.modules)
    GymEnvFactory(GymConfig(id="MinAtar/Freeway-v1")).make(training=True).close()
    assert not {"seaborn", "scipy.stats"} & (set(sys.modules) - before)


def test_without_the_extra_the_line_that_installs_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)  # as if it were not installed
    with pytest.raises(
        MissingPackage, match=r'Breakout-v1 needs .*: pip install "border-cli\[minatar\]"$'
    ):
        construct(GymConfig(id="MinAtar/Breakout-v1"))


@installed
@pytest.mark.slow
def test_an_unknown_game_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean: `Breakout`\?"):
        construct(GymConfig(id="MinAtar/Brakout-v1"))
