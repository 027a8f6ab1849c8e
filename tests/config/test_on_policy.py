"""Components that on-policy agents choose, and settings that do not work with them."""

from __future__ import annotations

import re

import pytest

from border_cli import compose
from border_cli.errors import ConfigError

PPO = ("agent=ppo", "env=cartpole")


@pytest.mark.parametrize("agent", ["ppo", "a2c"])
def test_the_agent_chooses_rollouts_and_actors_that_wait(agent: str) -> None:
    config = compose(f"agent={agent}", "env=walker2d")
    assert config.replay_buffer.on_policy
    assert config.trainer.synchronous
    assert (config.env.num_envs, config.actor_manager.num_actors) == (8, 1)


def test_another_agent_in_the_same_sweep_keeps_its_own_trainer() -> None:
    trainers = [compose(f"agent={agent}", "env=cartpole").trainer for agent in ("ppo", "dqn")]
    assert [trainer.synchronous for trainer in trainers] == [True, False]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ((*PPO, "~tuned", "replay_buffer=uniform"), "use replay_buffer=rollout, got uniform"),
        ((*PPO, "~tuned", "replay_buffer=prioritized"), "no TD errors"),
        ((*PPO, "trainer=async"), "agent=ppo needs trainer=sync, got async"),
        ((*PPO, "~tuned", "trainer=offline"), "use replay_buffer=rollout, got dataset"),
        ((*PPO, "step_processor=multi_step"), "step_processor.n_steps must be 1"),
        ((*PPO, "agent.augment=shift"), "agent.augment must be none"),
        ((*PPO, "trainer.warmup_period=5"), "trainer.warmup_period has no effect with agent=ppo"),
        ((*PPO, "trainer.samples_per_opt_step=2"), "trainer.samples_per_opt_step has no effect"),
        ((*PPO, "trainer.sync_interval=5"), "trainer.sync_interval has no effect"),
        ((*PPO, "replay_buffer.capacity=100"), "replay_buffer.capacity has no effect: see"),
        ((*PPO, "actor_manager.exploration=ape_x"), "actor_manager.exploration has no effect"),
        (
            (*PPO, "agent.batch_size=512"),
            "agent.batch_size must be at most the 256 transitions of a rollout",
        ),
        (
            ("agent=dqn", "env.id=A-v0", "step_processor.n_steps=1", "replay_buffer=rollout"),
            "replay_buffer=rollout is for on-policy agents such as ppo",
        ),
        (
            (*PPO, "agent.sample_freq=4"),
            "agent.sample_freq must be null unless agent.exploration=gsde",
        ),
        (
            ("agent=ppo", "env=cartpole", "agent.clip_reward=5"),
            "agent.clip_reward needs agent.normalize_reward=true",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(typed: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        compose(*typed)
