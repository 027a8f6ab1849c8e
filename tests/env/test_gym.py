"""Episodes, seeds and flags of the Gymnasium environments."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest

from border_cli.core.types import Episode, Step
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.env.gym_env import GymEnv

COUNTING = "border/Counting-v1"


def make(training: bool = True, **settings: Any) -> GymEnv:
    return GymEnvFactory(GymConfig(**({"id": COUNTING} | settings))).make(training=training)


def act(env: GymEnv, times: int = 1) -> Step:
    for _ in range(times):
        step = env.step(np.zeros(env.num_envs, np.int64))
    return step


def test_a_step_contains_the_observation_acted_on_and_its_outcome():
    env = make()
    env.reset(0)
    act(env)
    action = np.array([1])
    step = env.step(action)
    np.testing.assert_array_equal(step.obs, [[1, 1]])
    np.testing.assert_array_equal(step.next_obs, [[1, 2]])
    np.testing.assert_array_equal(step.act_obs, [[1, 2]])
    assert (step.action.tolist(), step.reward.tolist()) == ([1], [2.0])
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False], [False])
    assert step.episodes == ()
    assert (step.reward.dtype, step.terminated.dtype) == (np.float32, np.bool_)


def test_an_end_shows_the_true_last_observation_and_the_first_of_the_next_episode():
    env = make(num_envs=2)
    env.reset(0)
    step = act(env, times=3)
    np.testing.assert_array_equal(step.next_obs, [[1, 3], [1, 3]])
    np.testing.assert_array_equal(step.act_obs, [[2, 0], [2, 0]])
    assert step.terminated.tolist() == [True, True]
    assert step.truncated.tolist() == [False, False]
    assert step.episodes == (Episode(6.0, 3), Episode(6.0, 3))  # 1 + 2 + 3
    np.testing.assert_array_equal(act(env).obs, step.act_obs)


def test_only_the_environment_that_ended_begins_anew(counting):
    env = make(num_envs=2, kwargs={"length": 2})
    counting.made[1].length = 3
    env.reset(0)
    step = act(env, times=2)
    np.testing.assert_array_equal(step.act_obs, [[2, 0], [1, 2]])
    assert step.terminated.tolist() == [True, False]
    step = act(env)
    np.testing.assert_array_equal(step.act_obs, [[2, 1], [2, 0]])
    assert step.episodes == (Episode(6.0, 3),)


def test_the_time_limit_of_the_settings_truncates():
    env = make(kwargs={"length": 1000}, max_episode_steps=4)
    env.reset(0)
    assert act(env, times=3).truncated.tolist() == [False]
    for _ in range(2):
        step = act(env)
        assert (step.terminated.tolist(), step.truncated.tolist()) == ([False], [True])
        assert step.episodes == (Episode(10.0, 4),)
        act(env, times=3)


def act_until_end(env: GymEnv) -> int:
    env.reset(0)
    for count in range(1, 1000):
        if act(env).episodes:
            return count
    raise AssertionError("no end")


def test_the_time_limit_counts_actions_also_outside_a_wrapper_that_repeats_them(counting):
    env = make(
        kwargs={"length": 1000},
        wrappers=[{"RepeatAction": {"num_repeats": 3}}],
        max_episode_steps=4,
    )
    assert act_until_end(env) == 4
    assert len(counting.made[0].actions) == 12


def test_a_termination_at_the_time_limit_is_a_termination():
    env = make(max_episode_steps=3)
    env.reset(0)
    assert act(env, times=3).terminated.tolist() == [True]


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, None),
        ({"id": "border/Limited-v1", "max_episode_steps": 7}, 7),
        ({"wrappers": [{"TimeLimit": {"max_episode_steps": 9}}, "FlattenObservation"]}, 9),
    ],
)
def test_the_spec_finds_the_time_limit_wherever_it_stands(settings, limit):
    assert GymEnvFactory(GymConfig(**({"id": COUNTING} | settings))).spec.max_episode_steps == limit


def test_the_spec_constructs_one_environment_and_closes_it(counting):
    factory = GymEnvFactory(GymConfig(id=COUNTING, num_envs=5))
    assert factory.spec is factory.spec
    assert [env.closed for env in counting.made] == [1]


def test_an_evaluation_environment_lies_still_after_its_end(counting):
    env = make(training=False, num_envs=2, kwargs={"length": 2})
    counting.made[1].length = 4
    env.reset(0)
    step = act(env, times=2)
    assert step.terminated.tolist() == [True, False]
    assert step.episodes == (Episode(3.0, 2),)
    np.testing.assert_array_equal(step.act_obs, [[1, 2], [1, 2]])
    step = act(env)
    np.testing.assert_array_equal(step.obs, [[1, 2], [1, 2]])
    np.testing.assert_array_equal(step.next_obs, [[1, 2], [1, 3]])
    assert step.reward.tolist() == [0, 3]
    assert not step.terminated.any()
    assert act(env).terminated.tolist() == [False, True]
    step = act(env, times=2)
    np.testing.assert_array_equal(step.act_obs, [[1, 2], [1, 4]])
    assert step.reward.tolist() == [0, 0]
    assert [len(env.actions) for env in counting.made] == [2, 4]


def test_every_episode_has_a_seed_of_its_own_that_no_other_environment_changes(counting):
    make_one = make(num_envs=1, kwargs={"length": 1})
    make_one.reset(7)
    act(make_one, times=2)
    make_three = make(num_envs=3, kwargs={"length": 1})
    make_three.reset(7)
    act(make_three, times=2)
    alone, *three = [env.seeds for env in counting.made]
    assert alone == three[0]
    for i, seeds in enumerate(three):
        children = [np.random.SeedSequence(7, spawn_key=(i, n)) for n in range(3)]
        assert seeds == [int(child.generate_state(1)[0]) for child in children]
    assert len({seed for seeds in three for seed in seeds}) == 9


def test_a_run_of_cartpole_agrees_with_gymnasium_itself():
    actions = np.random.default_rng(0).integers(0, 2, 300)
    env = make(id="CartPole-v1")
    ours = [env.reset(5)[0]]
    ours += [env.step(action[None]).act_obs[0] for action in actions]

    theirs, episode = gymnasium.make("CartPole-v1"), 0

    def begin() -> Any:
        sequence = np.random.SeedSequence(5, spawn_key=(0, episode))
        return theirs.reset(seed=int(sequence.generate_state(1)[0]))[0]

    expected = [begin()]
    for action in actions:
        obs, _, terminated, truncated, _ = theirs.step(action)
        if terminated or truncated:
            episode += 1
            obs = begin()
        expected.append(obs)
    assert episode > 5
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("training", [True, False])
def test_no_array_of_a_step_is_written_again(training):
    env = make(training, num_envs=2, kwargs={"length": 4})
    env.reset(0)
    steps, copies = [], []
    for t in range(12):
        step = env.step(np.array([t % 2, 0]))
        steps.append(step)
        copies.append(pickle.loads(pickle.dumps(step)))
    for name in ("obs", "action", "reward", "terminated", "truncated", "next_obs", "act_obs"):
        for step, copied in zip(steps, copies, strict=True):
            np.testing.assert_array_equal(getattr(step, name), getattr(copied, name))
        for a, b in pairwise(getattr(step, name) for step in steps):
            constant = not a.flags.writeable and not b.flags.writeable
            assert constant or not np.shares_memory(a, b)
