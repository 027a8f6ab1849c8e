"""Rewards for substituted goals, computed by the environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reaching

from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec
from border_cli.env.config import GymConfig
from border_cli.env.goals import GymGoalRewards, refuse_no_goals
from border_cli.env.gym import GymEnvFactory
from border_cli.env.vector import GymVectorEnv
from border_cli.errors import BadStep, ConfigError
from tests.support.spaces import reals


def rewards_of(name: str, **settings: Any) -> Any:
    return GymEnvFactory(GymConfig(id=f"border/{name}-v0", **settings)).goal_rewards()


def goals(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (2, count, 1)).astype(np.float32)


def test_rewards_of_many_goals_are_those_of_compute_reward_to_the_bit() -> None:
    achieved, desired = goals(200)
    rewards = rewards_of("Reach").rewards(achieved, desired)
    env = reaching.Reach()
    expected = [
        env.compute_reward(a.astype(np.float64), d.astype(np.float64), {})
        for a, d in zip(achieved, desired, strict=True)
    ]
    assert (rewards.dtype, rewards.tolist()) == (np.float32, expected)
    assert {*rewards.tolist()} == {0, -1}


def test_the_achieved_goal_comes_before_the_desired_one() -> None:
    class Above(reaching.Reach):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            del info
            return (achieved > desired).all(-1)

    rewards = GymGoalRewards(Above(), "Above").rewards(*goals(50))
    np.testing.assert_array_equal(rewards, np.subtract(*goals(50))[:, 0] > 0)


def test_a_goal_ends_an_episode_where_compute_terminated_says_so() -> None:
    achieved, desired = goals(50)
    assert rewards_of("Reach").terminated(achieved, desired) is None
    terminated = rewards_of("Stop").terminated(achieved, desired)
    np.testing.assert_array_equal(terminated, np.abs(achieved - desired)[:, 0] <= reaching.NEAR)
    assert terminated.any()


def test_an_environment_that_cannot_compute_rewards_of_many_goals_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs an environment with compute_reward\(achieved"):
        rewards_of("Mute")
    with pytest.raises(
        BadStep, match=r"is not one number for each .*along their last axis: its sh"
    ):
        rewards_of("OneGoal")


@pytest.mark.parametrize(
    ("says", "got"),
    [("none", r" None is not one number"), ("not a number", "nan"), ("huge", r"1\.e\+300")],
)
def test_rewards_that_are_no_finite_numbers_are_refused_as_what_they_are(
    says: str, got: str
) -> None:
    with pytest.raises(BadStep, match=rf"^env\.id=border/Odd-v0: .*compute_reward.*{got}"):
        rewards_of("Odd", kwargs={"says": says})


def test_a_wrapper_between_does_not_hide_the_goals() -> None:
    goal_rewards = rewards_of("Reach", wrappers=["ClipAction"])
    assert goal_rewards.rewards(*goals(4)).shape == (4,)


@pytest.mark.parametrize("wrappers", [[], ["ClipAction"]])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_what_info_says_last_comes_with_each_episode(num_envs: int, wrappers: list[Any]) -> None:
    config = GymConfig(
        id="border/Reach-v0",
        num_envs=num_envs,
        wrappers=wrappers,
        info_metrics=["distance", "text", "is_success"],
    )
    factory = GymEnvFactory(config)
    assert factory.spec.info_metrics == ("is_success", "distance", "text")
    env = factory.make(training=True)
    env.reset(0)
    steps = [env.step(np.full((num_envs, 1), 0.01, np.float32)) for _ in range(reaching.STEPS)]
    last = steps[-1].next_obs
    assert isinstance(last, dict)
    distance = np.abs(last["achieved_goal"] - last["desired_goal"])[:, 0]
    assert [len(step.episodes) for step in steps] == [0] * (reaching.STEPS - 1) + [num_envs]
    for i, episode in enumerate(steps[-1].episodes):
        near, far, text = episode.metrics
        assert far == pytest.approx(distance[i], abs=1e-6)
        assert near == (far <= reaching.NEAR)
        assert np.isnan(text)  # not a number
    env.close()


def test_a_vector_implementation_reports_the_last_info_of_the_episode_that_ended() -> None:
    config = GymConfig(
        id="border/Many-v0", num_envs=3, info_metrics=["distance"], kwargs={"mode": "NextStep"}
    )
    env = GymEnvFactory(config).make(training=True)
    assert isinstance(env, GymVectorEnv)
    env.reset(0)
    steps = [env.step(np.full((3, 1), 0.01, np.float32)) for _ in range(reaching.STEPS)]
    last = steps[-1].next_obs
    assert isinstance(last, dict)
    distance = np.abs(last["achieved_goal"] - last["desired_goal"])[:, 0]
    reported = [episode.metrics[1] for episode in steps[-1].episodes]
    np.testing.assert_allclose(reported, distance, atol=1e-6)
    env.close()


@pytest.mark.parametrize("name", ["return", "length_std", "a/b", ""])
def test_invalid_names_of_metrics_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.info_metrics must be names in info"):
        GymConfig(info_metrics=[name])


def spec_of(**parts: Any) -> EnvSpec:
    return EnvSpec(
        id="Goals-v0",
        observation=DictSpace(parts),
        action=DiscreteSpace(2),
        max_episode_steps=None,
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            EnvSpec(
                id="Plain-v0",
                observation=reals(3),
                action=DiscreteSpace(2),
                max_episode_steps=None,
            ),
            r"of env\.id=Plain-v0 have no achieved_goal and no desired_goal\. Use replay_buffer=un",
        ),
        (spec_of(achieved_goal=reals(1)), r"of env\.id=Goals-v0 have no desired_goal\."),
    ],
)
def test_observations_without_goals_are_refused(spec: EnvSpec, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        refuse_no_goals(spec)


@pytest.mark.parametrize("setting", [{"frame_skip": 2}, {"reward_weights": [0.5]}])
def test_settings_that_change_rewards_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be set with replay_buffer=hindsight"):
        GymEnvFactory(GymConfig(id="border/Reach-v0", **setting)).goal_rewards()
