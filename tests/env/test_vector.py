"""Vector environments compared with single environments stepped in a loop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest

from border_cli.core.interfaces import Env
from border_cli.core.types import Array, Episode, Step, Transitions
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv
from border_cli.env.vector import GymVectorEnv
from border_cli.errors import BadStep
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.case_sampling import sampled
from tests.support.vector_envs import LANES, Alone, Endless

NEXT_STEP = {"mode": "NextStep"}
STEPS = 150


def make(env_id: str, *, limit: int | None = None, num_envs: int = LANES, **settings: Any) -> Env:
    config = GymConfig(
        id=f"border/{env_id}-v1", num_envs=num_envs, max_episode_steps=limit, **settings
    )
    return GymEnvFactory(config).make(training=True)


def vector(env_id: str = "Endless", **settings: Any) -> GymVectorEnv:
    env = make(env_id, **settings)
    assert isinstance(env, GymVectorEnv)
    return env


def leaf(obs: Array) -> Any:
    """Returns the episode number and the rung of every environment. [N, 2]"""
    if not isinstance(obs, dict):
        return obs
    assert [(key, values.dtype.name) for key, values in obs.items()] == [
        ("z", "uint8"), ("a", "int64"), ("m", "int64"), ("f", "float32"),
    ]  # fmt: skip
    assert all(values.flags.c_contiguous for values in obs.values())
    numbers = np.stack([obs["a"], obs["m"][:, 0]], axis=1)
    np.testing.assert_array_equal(obs["z"], np.broadcast_to(numbers[:, 1, None, None], (4, 2, 2)))
    np.testing.assert_array_equal(obs["f"], (numbers / 3).astype(np.float32))
    assert not obs["m"][:, 1].any()
    return numbers


def climb(env: Env, count: int) -> list[Step]:
    """Steps every environment with actions that depend on its own observation alone."""
    obs = env.reset(0)
    steps = []
    for _ in range(count):
        numbers = np.asarray(leaf(obs), np.int64)
        speed = (numbers[:, 0] * (np.arange(LANES) + 1) + numbers[:, 1]) % 3 // 2
        steps.append(env.step(np.stack([np.arange(LANES), speed], axis=1)))
        obs = steps[-1].act_obs
    return steps


def lanes(parts: list[Transitions]) -> list[list[tuple[Any, ...]]]:
    """Groups rows by environment. The first entry of an action is the environment's number."""
    lane_rows: list[list[tuple[Any, ...]]] = [[] for _ in range(LANES)]
    for rows in parts:
        if not len(rows):
            continue
        obs, next_obs = rows.obs, rows.next_obs
        if isinstance(obs, dict):
            obs = np.stack([obs["a"], obs["m"][:, 0]], axis=1)
        if isinstance(next_obs, dict):
            next_obs = np.stack([next_obs["a"], next_obs["m"][:, 0]], axis=1)
        for row in zip(obs, rows.action, rows.reward, rows.discount, next_obs, strict=True):
            lane_rows[int(row[1][0])].append(tuple(np.asarray(value).tolist() for value in row))
    return lane_rows


def episodes_of(steps: list[Step]) -> list[list[Episode]]:
    """Returns the episodes of every environment, in order."""
    episodes: list[list[Episode]] = [[] for _ in range(LANES)]
    for step in steps:
        ended = np.flatnonzero(step.terminated | step.truncated).tolist()
        for i, episode in zip(ended, step.episodes, strict=True):
            episodes[i].append(episode)
    return episodes


def processed(steps: list[Step], n_steps: int) -> list[Transitions]:
    n_step = NStep(NStepConfig(n_steps=n_steps), gamma=0.5, num_envs=LANES)
    return [n_step.process(step) for step in steps]


@pytest.mark.parametrize("limit", sampled([None, 4, 1], every=2))
@pytest.mark.parametrize("named", [False, True], ids=["array", "dict"])
def test_it_gives_the_rows_of_single_environments(named, limit):
    kwargs = {**NEXT_STEP, "named": named}
    env = make("Climb", kwargs=kwargs, limit=limit)
    alone = make("Climb", kwargs=kwargs, limit=limit, vectorization="sync")
    assert (type(env), type(alone)) == (GymVectorEnv, GymEnv)
    steps, expected = climb(env, STEPS), climb(alone, STEPS)

    for n_steps in (1, 3):
        theirs = lanes(processed(expected, n_steps))
        for mine, its in zip(lanes(processed(steps, n_steps)), theirs, strict=True):
            shared = min(len(mine), len(its))
            assert shared > STEPS // 2 - 3
            assert mine[:shared] == its[:shared]
    for ended, others in zip(episodes_of(steps), episodes_of(expected), strict=True):
        assert len(ended) > 10
        assert ended == others[: len(ended)]


def test_rewards_and_flags_of_a_step_that_only_resets_are_ignored():
    env = vector("Tipping", num_envs=3)
    env.reset(0)
    first, second, third = [env.step(np.zeros(3, np.int64)) for _ in range(3)]
    assert first.terminated.tolist() == [False, False, True]  # states 0, 1, 2 move to 1, 2, 3
    assert second.next_obs.tolist() == [[2], [3], [0]]
    assert second.terminated.tolist() == [False, True, False]
    assert second.truncated.tolist() == [False, False, False]
    assert (second.reward.tolist(), second.episodes) == ([1, 1, 0], (Episode(2.0, 2),))
    assert third.moved is not None
    assert third.moved.tolist() == [True, False, True]


def test_no_array_of_a_step_is_written_again():
    steps = climb(make("Climb", kwargs=NEXT_STEP), 40)
    fresh = climb(make("Climb", kwargs=NEXT_STEP), 40)
    for name in ("obs", "action", "reward", "terminated", "truncated", "next_obs", "act_obs"):
        for step, again in zip(steps, fresh, strict=True):
            np.testing.assert_array_equal(getattr(step, name), getattr(again, name))
        arrays = [getattr(step, name) for step in steps]
        assert not any(np.shares_memory(a, b) for a, b in pairwise(arrays))


def test_the_limit_of_the_registration_holds_where_the_settings_name_none():
    steps = climb(make("ClimbLimited", kwargs=NEXT_STEP), 40)
    lengths = {episode.length for step in steps for episode in step.episodes}
    assert lengths == {2}


def test_a_limit_that_the_implementation_does_not_keep_is_an_error():
    env = vector("Bounded", limit=2, kwargs={"length": 99}, num_envs=3)
    env.reset(0)
    env.step(np.zeros(3, np.int64))
    with pytest.raises(
        BadStep, match=r"does not end episodes at max_episode_steps=2\. Use env\.vecto"
    ):
        env.step(np.zeros(3, np.int64))


def test_the_seed_of_the_first_episodes_follows_from_the_seed_and_the_first_environment():
    config = GymConfig(id="border/Endless-v1", num_envs=2)
    for first in (0, 5):
        env = GymEnvFactory(config).make(training=True, first=first)
        assert isinstance(env, GymVectorEnv)
        env.reset(7)
        child = np.random.SeedSequence(7, spawn_key=(first,))
        assert env._env.seeds == [int(child.generate_state(1)[0]) >> 2]


class Strange(Endless):
    """Returns the invalid value that `shown` names from `step` or `reset`."""

    def step(self, action: Any) -> Any:
        obs, reward, over, cut, info = super().step(action)
        if self.shown == "one observation less":
            obs = obs[:-1]
        elif self.shown == "strings":
            obs = obs.astype(str)
        elif self.shown == "one reward":
            reward = 1.0
        elif self.shown == "counted flags":
            cut = np.array([0, 2, 0])
        elif self.shown == "four values":
            return obs, reward, over, info
        return obs, reward, over, cut, info

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        return (obs[:, 0], info) if self.shown == "flat" else (obs, info)


gymnasium.register("border/Strange-v1", entry_point=Alone, vector_entry_point=Strange)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("one observation less", r": the observation .* its shape is \(2, 1\), not \(3, 1\)$"),
        ("strings", ": the observation .* expected real numbers, got <U"),
        ("one reward", ": the reward 1.0 is not a number: its shape is"),
        ("counted flags", r": truncated .* is not true or false: 2 at \[1\] is out of bounds"),
        ("four values", ": step must return observation, reward, terminated, truncated and info"),
    ],
)
def test_what_a_vector_implementation_answers_is_checked(shown: str, said: str) -> None:
    env = vector("Strange", num_envs=3, kwargs={"shown": shown})
    env.reset(0)
    with pytest.raises(BadStep, match=rf"^env\.id=border/Strange-v1{said}"):
        env.step(np.zeros(3, np.int64))
