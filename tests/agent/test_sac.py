"""Effects of the settings of soft actor-critic, and invalid settings."""

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
from border_cli.nn.batch import as_columns
from tests.support.continuous_env import batch, counted, spec
from tests.support.saved_states import same
from tests.support.soft_agents import sac
from tests.support.spaces import reals

CONF = Path(__file__).parents[2] / "conf" / "agent"


def weights(agent: Any, *parts: str) -> list[Any]:
    state = agent.state_dict()
    return [state[part] for part in parts]


def tensors(seed: int) -> Any:
    rows = as_columns(batch(seed), torch.from_numpy)
    return rows._replace(action=torch.zeros_like(rows.action))


def test_rewards_are_scaled():
    scaled, plain = sac(reward_scale=2.0), sac()
    for seed in range(3):
        rows = batch(seed)
        scaled.update(rows)
        plain.update(replace(rows, reward=2 * rows.reward))
    assert same(weights(scaled, "actor", "critic"), weights(plain, "actor", "critic"))


def test_actor_and_ent_coef_wait_for_their_turn():
    agent = sac(policy_delay=3)
    for step in range(1, 7):
        before = weights(agent, "actor", "ent_coef"), weights(agent, "critic", "critic_target")
        update = agent.update(batch(step))
        after = weights(agent, "actor", "ent_coef"), weights(agent, "critic", "critic_target")
        is_due = step % 3 == 0
        assert same(before[0], after[0]) != is_due
        assert not same(before[1], after[1])
        assert ("loss_actor" in update.metrics) == ("entropy" in update.metrics) == is_due


def test_each_target_uses_two_different_critics_drawn_at_random():
    agent = sac(num_critics=4, subset=2, ent_coef=0.0)
    with torch.no_grad():  # critic i returns i for every input
        for parameter in agent.critics.target.mlp.parameters():
            parameter.zero_()
        agent.critics.target.mlp.biases[-1].copy_(torch.arange(4.0)[:, None, None])
        for parameter in agent.critics.online.mlp.parameters():
            parameter.zero_()
    rows, pairs = tensors(0), []
    for _ in range(300):
        draws = agent.draw_critic_noise(rows)
        assert draws.members is not None
        pairs.append(tuple(sorted(draws.members.tolist())))
        loss = agent.critic_loss(rows, draws, agent.ent_coef())
        expected = rows.reward + rows.discount * min(pairs[-1])
        torch.testing.assert_close(loss.q - loss.target, -expected.expand(4, 8, 1))
    shares = {pair: pairs.count(pair) / 300 for pair in combinations(range(4), 2)}
    assert sum(shares.values()) == pytest.approx(1)
    assert all(share == pytest.approx(1 / 6, abs=0.07) for share in shares.values())


@pytest.mark.parametrize(("what", "expected"), [("min", 0.0), ("mean", 1.5)])
def test_the_actor_climbs_the_smallest_or_the_mean(what: str, expected: float):
    agent, rows = sac(num_critics=4, actor_critics=what), tensors(0)
    with torch.no_grad():
        for parameter in agent.critics.online.mlp.parameters():
            parameter.zero_()
        agent.critics.online.mlp.biases[-1].copy_(torch.arange(4.0)[:, None, None])
    result = agent.actor_loss(rows, agent.draw_actor_noise(rows), torch.zeros(()))
    torch.testing.assert_close(result.loss, -expected * rows.weight.mean())


def test_dropout_leaves_out_units_of_critics_and_of_targets_but_never_acts():
    agent = sac(dropout=0.5)
    rows = tensors(0)
    draws, other_draws = agent.draw_critic_noise(rows), agent.draw_critic_noise(rows)
    for masks in (
        draws.dropout,
        draws.target_dropout,
        other_draws.dropout,
        agent.draw_actor_noise(rows).dropout,
    ):
        assert masks is not None
        assert {0.0, 2.0} == {value for mask in masks for value in mask.unique().tolist()}
    ent_coef = agent.ent_coef()
    reference = agent.critic_loss(rows, draws, ent_coef)
    for name in ("dropout", "target_dropout"):
        changed = agent.critic_loss(
            rows, draws._replace(**{name: getattr(other_draws, name)}), ent_coef
        )
        assert not torch.equal(changed.q - changed.target, reference.q - reference.target)
    values = [agent.critics.frozen(rows.obs, rows.action) for _ in range(2)]
    assert torch.equal(*values)
    assert sac().draw_critic_noise(rows).dropout is None


def test_layer_norm_of_critics_leaves_the_actor_as_it_is():
    agent = sac(critic_layer_norm=True)
    assert len(agent.critics.online.mlp.scales) == 2
    assert not agent.actor.mlp.norms
    assert len(sac(layer_norm=True).actor.mlp.norms) == 2


def test_each_learning_rate_applies_to_the_part_it_names():
    """Adam's first step equals the learning rate unless the gradient is tiny."""
    agent = sac(learning_rate=0.01, critic_learning_rate=0.002, ent_coef_learning_rate=0.3)
    before = weights(agent, "actor", "critic", "ent_coef")
    agent.update(batch(0))
    after = weights(agent, "actor", "critic", "ent_coef")
    for old, new, rate in zip(before, after, (0.01, 0.002, 0.3), strict=True):
        largest = max(np.abs(new[name] - old[name]).max() for name in old)
        assert largest == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("name", ["redq", "droq"])
def test_the_command_in_the_config_file_has_one_actor_update_per_sample(name: str):
    text = (CONF / f"{name}.yaml").read_text(encoding="utf-8")
    (line,) = (
        text_line for text_line in text.splitlines() if text_line.startswith("# border-train ")
    )
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
def test_invalid_combinations_of_settings_are_refused(settings: dict[str, Any], match: str):
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
