"""Ends of episodes, as an actor reports them to its policy and to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Actor, Message, ReplayBufferProxy
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.interfaces import Env, Policy, StepProcessor
from border_cli.core.types import Array, Snapshot
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.fakes import CountingEnv, FakeClock, FakePolicy, OneStep
from tests.support.vector_envs import LANES


class Alternating(Policy):
    """In every episode of environment i, the actions are [i, 0], [i, 1], [i, 0], …"""

    def __init__(self) -> None:
        self._steps = np.zeros(LANES, np.int64)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        del obs, explore
        action = np.stack([np.arange(LANES), self._steps % 2], axis=1)
        self._steps += 1
        return action

    def forget(self, envs: Sequence[int]) -> None:
        self._steps[list(envs)] = 0

    def load_snapshot(self, snapshot: Snapshot) -> None:
        raise AssertionError(f"nobody loads {snapshot}")


def make_actor(env: Env, policy: Policy, processor: StepProcessor) -> tuple[Actor, list[Message]]:
    sent: list[Message] = []

    def send(message: Message) -> float:
        sent.append(message)
        return 0.0

    actor = Actor(
        env=env,
        env_seed=8,
        policy=policy,
        step_processor=processor,
        proxy=ReplayBufferProxy(0, 1_000, send, FakeClock()),
        weights=WeightSlot(),
        clock=FakeClock(),
    )
    return actor, sent


@pytest.mark.parametrize("vectorization", ["auto", "sync"])
def test_a_policy_begins_anew_with_each_episode_of_each_environment(vectorization):
    """Alternating speeds 0 and 1 climb 1 and 2 rungs: in every episode the speed is 0 at rungs 0,
    3, 6, … and 1 at rungs 1, 4, 7, … Episodes end after 2 to 6 steps, at different times."""
    env = GymEnvFactory(
        GymConfig(
            id="border/Climb-v1",
            num_envs=LANES,
            kwargs={"mode": "NextStep"},
            vectorization=vectorization,
        )
    ).make(training=True)
    processor = NStep(NStepConfig(), gamma=0.9, num_envs=LANES)
    actor, sent = make_actor(env, Alternating(), processor)
    for _ in range(100):
        actor.step()
    actor.flush()
    actor.close()
    [rows] = [message.experience().transitions for message in sent]
    assert isinstance(rows.obs, np.ndarray)
    episode, rung = rows.obs.T
    assert episode.max() > 15
    np.testing.assert_array_equal(rows.action[:, 1], rung % 3)


def test_a_policy_is_reset_only_when_episodes_end():
    policy = FakePolicy()
    policy.loaded.append(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays={}))
    actor, _ = make_actor(CountingEnv(num_envs=2, episode=4), policy, OneStep())
    for _ in range(7):
        actor.step()
    assert policy.forgot == [[0, 1]]


def test_every_episode_is_reported_in_one_message():
    policy = FakePolicy()
    policy.loaded.append(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays={}))
    actor, sent = make_actor(CountingEnv(num_envs=2, episode=4), policy, OneStep())
    for step in range(1, 13):
        actor.step()
        if step in (5, 8, 12):
            actor.flush()
    assert [len(message.episodes) for message in sent] == [2, 2, 2]
