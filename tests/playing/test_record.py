"""Playing episodes to record them."""

from __future__ import annotations

from contextlib import closing

from border_cli.core.stop import StopFlag
from border_cli.core.types import Snapshot
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.playing.record import play_round
from tests.support.fakes import FakePolicy


def test_a_policy_forgets_what_lasts_before_every_round() -> None:
    policy = FakePolicy()
    policy.load_snapshot(Snapshot(opt_steps=0, env_steps=0, warm_up=False, arrays={}))
    factory = GymEnvFactory(GymConfig(id="CartPole-v1", num_envs=2))
    with closing(factory.make(training=False)) as env:
        for seed in range(2):
            rollouts = play_round(env, policy, seed, StopFlag(), limit=3, explore=True)
            assert [len(rollout.action) for rollout in rollouts] == [3, 3]
    assert policy.forgot == [[0, 1]] * 2
