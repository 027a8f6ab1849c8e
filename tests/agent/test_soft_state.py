"""What the state of a soft actor-critic has beside those of others: the weight of entropy."""

from __future__ import annotations

import pytest
import torch
from continuous import batch
from soft_agents import sac

from border_cli.core.errors import CheckpointError


def test_a_learned_weight_of_entropy_begins_where_it_was_and_a_twin_has_the_critics_weights():
    old, new = sac(1), sac(2)
    for seed in range(12):
        old.update(batch(seed))
    new.load_weights(old.state_dict())
    assert torch.equal(new.ent_coef(), old.ent_coef())
    assert torch.equal(new.frozen_critic.mlp.weights[0], new.critic.mlp.weights[0])


def test_a_fixed_weight_of_entropy_is_that_of_the_settings_and_not_of_a_checkpoint():
    old, new = sac(ent_coef=0.3), sac(ent_coef=0.1)
    new.load_weights(old.state_dict())
    assert new.ent_coef().item() == pytest.approx(0.1)


@pytest.mark.parametrize(("old", "new"), [(None, 0.1), (0.3, None)])
def test_a_coefficient_that_one_of_two_runs_learned_is_that_of_the_settings(
    old: float | None, new: float | None, caplog: pytest.LogCaptureFixture
):
    """The networks fit all the same."""
    before, after = sac(1, ent_coef=old), sac(2, ent_coef=new)
    first = after.ent_coef().item()
    for seed in range(5):
        before.update(batch(seed))
    with caplog.at_level("INFO"):
        after.load_weights(before.state_dict())
    assert after.ent_coef().item() == first
    assert torch.equal(after.actor.mlp.layers[0].weight, before.actor.mlp.layers[0].weight)
    assert "agent.ent_coef starts at its configured value: the saved agent" in caplog.text
    with pytest.raises(CheckpointError, match=r"saved state does not fit .*: agent\.ent_coef: "):
        after.load_state_dict(before.state_dict())


def test_weights_of_another_number_of_critics_are_refused():
    match = r"its network 'critic' differs: agent\.num_critics \(saved with 3, now 2\)$"
    with pytest.raises(CheckpointError, match=match):
        sac().load_weights(sac(num_critics=3).state_dict())


def test_a_weight_of_entropy_that_is_not_finite_is_named():
    agent = sac()
    agent.update(batch(0))
    assert agent.first_not_finite() is None
    agent.ent_coef.log.fill_(float("nan"))
    assert agent.first_not_finite() == "ent_coef.log"
