"""What the settings of soft actor-critic change, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli import compose
from border_cli.agent.config import SacConfig, TqcConfig
from border_cli.agent.sac import Sac
from border_cli.errors import ConfigError
from border_cli.nn.tensor_batch import TensorBatches
from tests.support.continuous_env import batch, counted, spec
from tests.support.saved_states import same
from tests.support.soft_agents import sac
from tests.support.spaces import reals

CONF = Path(__file__).parents[2] / "conf" / "agent"


def weights(agent: Any, *parts: str) -> list[Any]:
    state = agent.state_dict()
    return [{name: each.numpy() for name, each in state[part].items()} for part in parts]


def tensors(seed: int) -> Any:
    given = TensorBatches(torch.device("cpu"), own_memory=False).of(batch(seed))
    return given._replace(action=torch.zeros_like(given.action))


def test_rewards_are_scaled():
    one, other = sac(reward_scale=2.0), sac()
    for seed in range(3):
        given = batch(seed)
        one.update(given)
        other.update(replace(given, reward=2 * given.reward))
    assert same(weights(one, "actor", "critic"), weights(other, "actor", "critic"))


def test_actor_and_ent_coef_wait_for_their_turn():
    agent = sac(policy_delay=3)
    for step in range(1, 7):
        before = weights(agent, "actor", "ent_coef"), weights(agent, "critic", "critic_target")
        update = agent.update(batch(step))
        after = weights(agent, "actor", "ent_coef"), weights(agent, "critic", "critic_target")
        turn = step % 3 == 0
        assert same(before[0], after[0]) != turn
        assert not same(before[1], after[1])
        assert ("loss_actor" in update.metrics) == ("entropy" in update.metrics) == turn


def test_each_target_asks_two_critics_drawn_anew_and_no_critic_twice():
    agent = sac(num_critics=4, subset=2, ent_coef=0.0)
    with torch.no_grad():  # critic i says i, whatever it sees
        for each in agent.critics.target.mlp.parameters():
            each.zero_()
        agent.critics.target.mlp.biases[-1].copy_(torch.arange(4.0)[:, None, None])
        for each in agent.critics.online.mlp.parameters():
            each.zero_()
    given, seen = tensors(0), []
    for _ in range(300):
        draws = agent.draw_critic_noise(given)
        assert draws.members is not None
        seen.append(tuple(sorted(draws.members.tolist())))
        found = agent.critic_loss(given, draws, agent.ent_coef())
        expected = given.reward + given.discount * min(seen[-1])
        torch.testing.assert_close(found.q - found.target, -expected.expand(4, 8, 1))
    shares = {pair: seen.count(pair) / 300 for pair in combinations(range(4), 2)}
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share == pytest.approx(1 / 6, abs=0.07) for share in shares.values())


@pytest.mark.parametrize(("what", "expected"), [("min", 0.0), ("mean", 1.5)])
def test_the_actor_climbs_the_smallest_or_the_mean(what: str, expected: float):
    agent, given = sac(num_critics=4, actor_critics=what), tensors(0)
    with torch.no_grad():
        for each in agent.critics.online.mlp.parameters():
            each.zero_()
        agent.critics.online.mlp.biases[-1].copy_(torch.arange(4.0)[:, None, None])
    found = agent.actor_loss(given, agent.draw_actor_noise(given), torch.zeros(()))
    torch.testing.assert_close(found.loss, -expected * given.weight.mean())


def test_dropout_leaves_out_units_of_critics_and_of_targets_but_never_acts():
    agent = sac(dropout=0.5)
    given = tensors(0)
    one, other = agent.draw_critic_noise(given), agent.draw_critic_noise(given)
    for masks in (
        one.dropout,
        one.target_dropout,
        other.dropout,
        agent.draw_actor_noise(given).dropout,
    ):
        assert masks is not None
        assert {0.0, 2.0} == {value for each in masks for value in each.unique().tolist()}
    ent_coef = agent.ent_coef()
    first = agent.critic_loss(given, one, ent_coef)
    for name in ("dropout", "target_dropout"):
        changed = agent.critic_loss(given, one._replace(**{name: getattr(other, name)}), ent_coef)
        assert not torch.equal(changed.q - changed.target, first.q - first.target)
    values = [agent.critics.frozen(given.obs, given.action) for _ in range(2)]
    assert torch.equal(*values)
    assert sac().draw_critic_noise(given).dropout is None


def test_layer_norm_of_critics_leaves_the_actor_as_it_is():
    agent = sac(critic_layer_norm=True)
    assert len(agent.critics.online.mlp.scales) == 2
    assert not agent.actor.mlp.norms
    assert len(sac(layer_norm=True).actor.mlp.norms) == 2


def test_the_learning_rates_are_of_whom_they_name():
    """Adam's first step is the learning rate, wherever the gradient is not tiny."""
    agent = sac(learning_rate=0.01, critic_learning_rate=0.002, ent_coef_learning_rate=0.3)
    before = weights(agent, "actor", "critic", "ent_coef")
    agent.update(batch(0))
    after = weights(agent, "actor", "critic", "ent_coef")
    for old, new, rate in zip(before, after, (0.01, 0.002, 0.3), strict=True):
        largest = max(np.abs(new[name] - old[name]).max() for name in old)
        assert largest == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("name", ["redq", "droq"])
def test_the_command_line_in_a_file_makes_the_updates_that_an_improvement_is_delayed_by(name: str):
    text = (CONF / f"{name}.yaml").read_text(encoding="utf-8")
    (line,) = (each for each in text.splitlines() if each.startswith("# border-train "))
    config = compose(*line.removeprefix("# border-train ").split())
    assert isinstance(config.agent, SacConfig)
    assert config.trainer.samples_per_opt_step == 1 / config.agent.policy_delay == 0.05


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"subset": 3}, r"agent\.subset must be at most agent\.num_critics \(2\), got 3"),
        ({"ent_coef": 0.1, "ent_coef_init": 2.0}, r"agent\.ent_coef_init needs a learned ent_coef"),
        ({"layer_norm": True, "critic_layer_norm": True}, r"has no effect with agent\.layer_norm"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        SacConfig(**settings)


def test_quantiles_that_leave_none_are_refused():
    with pytest.raises(ConfigError, match=r"dropped_quantiles must be below .* \(25\), got 25"):
        TqcConfig(dropped_quantiles=25)


def test_environments_without_bounded_real_actions_are_refused():
    with pytest.raises(ConfigError, match=r"agent=sac needs a Box .* has Discrete\(3\)"):
        sac(env=counted())
    with pytest.raises(ConfigError, match=r"has Box\(-inf, inf, \(2,\), float32\)\. Give "):
        Sac(SacConfig(), spec=replace(spec(), action=reals(2)), device="cpu", seed=0)
