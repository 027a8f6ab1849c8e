"""Presets of gymnasium-robotics: rewards of steps equal the rewards that hindsight recomputes."""

from __future__ import annotations

import ctypes.util

import numpy as np
import pytest

from border_cli import compose
from border_cli.core.types import Step
from border_cli.env.gym import GymEnvFactory

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
PRESETS = ("fetch_reach", "fetch_push", "fetch_slide", "fetch_pick_and_place")


@pytest.fixture(autouse=True, scope="module")
def _robotics() -> None:
    pytest.importorskip("gymnasium_robotics", reason='pip install "border-cli[robotics]"')


@pytest.mark.parametrize("preset", PRESETS)
def test_rewards_of_a_robot_equal_compute_reward_of_its_goals(preset: str) -> None:
    config = compose("agent=sac", f"env={preset}")
    assert type(config.replay_buffer).__name__ == "HindsightConfig"
    factory = GymEnvFactory(config.env)  # type: ignore[arg-type]
    env, goal_rewards = factory.make(training=True), factory.goal_rewards()
    env.reset(3)
    rng = np.random.default_rng(0)
    steps: list[Step] = []
    for _ in range(60):
        action = rng.uniform(-1, 1, (1, *factory.spec.action.shape)).astype(np.float32)  # type: ignore[union-attr]
        steps.append(env.step(action))
    achieved, desired = (
        np.concatenate([step.next_obs[name] for step in steps])  # type: ignore[call-overload]
        for name in ("achieved_goal", "desired_goal")
    )
    np.testing.assert_array_equal(
        goal_rewards.rewards(achieved, desired),
        np.concatenate([one_step.reward for one_step in steps]),
    )
    assert not goal_rewards.terminated(achieved, desired).any()  # type: ignore[union-attr]
    assert [len(one_step.episodes) for one_step in steps].index(1) == 49
    assert steps[49].episodes[0].metrics[0] in (0, 1)
    goal_rewards.close()
    env.close()


@pytest.mark.skipif(ctypes.util.find_library("EGL") is None, reason="needs libEGL")
def test_a_robot_is_drawn_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    factory = GymEnvFactory(compose("agent=sac", "env=fetch_reach").env)  # type: ignore[arg-type]
    env = factory.make(training=False, render="rgb_array")
    env.reset(0)
    frame = env.frame()
    assert (frame.shape, frame.std() > 10) == ((480, 480, 3), True)
    env.close()
