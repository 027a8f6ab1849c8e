"""What the forms of the deep Q-network change around the formula: networks, noise, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compilers import needs_compiler

from border_cli.agent.config import DqnConfig, Exploration, Loss
from border_cli.agent.dqn import Dqn
from border_cli.core.errors import ConfigError
from border_cli.core.types import Batch
from border_cli.nn.tensor_batch import TDResult

RAINBOW: dict[str, Any] = {
    **{"double": True, "dueling": True, "noisy": True, "exploration": Exploration.greedy},
    **{"num_atoms": 11, "v_min": -3.0, "v_max": 3.0},
}


def dqn(spec: Any, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [6, 5], "learning_rate": 0.01, **settings})
    return Dqn(config, spec=spec, device="cpu", seed=seed)


def after(agent: Dqn, make_batch: Any, updates: int = 5) -> np.ndarray:
    for seed in range(updates):
        agent.update(make_batch(seed))
    online = agent.state_dict()["online"]
    return np.concatenate([each.numpy().ravel() for each in online.values()])


@pytest.mark.parametrize(
    "change",
    [
        {"dueling": False},
        {"noisy": False, "exploration": Exploration.softmax},
        {"noisy_std": 0.2},
        {"num_atoms": 12},
        {"v_min": -4.0},
        {"v_max": 4.0},
        {"double": False},
        {"conservative_weight": 0.5},
        {"adam_epsilon": 0.01},
    ],
)
def test_every_setting_changes_what_is_learned(spec, make_batch, change: dict[str, Any]):
    one = after(dqn(spec, **RAINBOW), make_batch)
    other = after(dqn(spec, **{**RAINBOW, **change}), make_batch)
    assert one.shape != other.shape or (one != other).any()


def test_a_plain_network_is_updated_without_autograd_and_a_dueling_one_with_it(
    spec, make_batch, monkeypatch
):
    def refused(*_: Any) -> None:
        raise AssertionError("autograd")

    monkeypatch.setattr(torch.autograd, "grad", refused)
    dqn(spec, num_atoms=5, conservative_weight=1.0).update(make_batch(0))
    for settings in ({"dueling": True}, {"layer_norm": True}, {"activation": "tanh"}):
        with pytest.raises(AssertionError, match="autograd"):
            dqn(spec, **settings).update(make_batch(0))


def test_each_update_draws_noise_for_each_of_its_passes(spec, make_batch):
    """The same batch and weights, and another loss: only the noise has moved on."""
    agent = dqn(spec, **RAINBOW)
    state, batch = agent.state_dict(), make_batch(0)
    first = float(agent.update(batch).metrics["loss"])
    moved = agent.state_dict()["noise"]
    agent.load_state_dict({**state, "noise": moved})
    assert float(agent.update(batch).metrics["loss"]) != first
    agent.load_state_dict(state)
    assert float(agent.update(batch).metrics["loss"]) == first
    noise = agent.pass_noise()
    assert noise is not None
    assert noise.shape == (3, agent.online.draws)  # type: ignore[union-attr]
    assert len({each.tobytes() for each in noise.numpy()}) == 3


def test_three_draws_serve_three_passes(spec, make_batch, monkeypatch):
    """s by the online network with the first, s' by the target with the second and by the online
    network with the third."""
    agent, batch = dqn(spec, **RAINBOW), make_batch(0)
    fixed = agent.normal(3, agent.online.draws)  # type: ignore[arg-type]
    monkeypatch.setattr(agent, "normal", lambda *_: fixed)
    seen = {}

    def td_loss(outputs: Any, next_outputs: Any, next_outputs_online: Any, _: Any) -> TDResult:
        seen.update(
            outputs=outputs, next_outputs=next_outputs, next_outputs_online=next_outputs_online
        )
        zero = torch.zeros(())
        return TDResult(torch.zeros_like(outputs), zero, zero, torch.zeros(8, 1))

    agent.td_loss = td_loss  # type: ignore[assignment]
    obs, next_obs = (torch.from_numpy(each) for each in (batch.obs, batch.next_obs))
    expected = {
        "outputs": agent.online(obs, fixed[0]).detach(),
        "next_outputs": agent.target(next_obs, fixed[1]).detach(),
        "next_outputs_online": agent.online(next_obs, fixed[2]).detach(),
    }
    agent.update(batch)
    for name, each in expected.items():
        assert torch.equal(seen[name], each), name


def test_the_priority_of_atoms_is_never_negative(spec, make_batch):
    errors = dqn(spec, **RAINBOW).update(make_batch(0)).td_error()
    assert errors.shape == (8,)
    assert (errors >= -1e-6).all()
    assert errors.max() > 0


def test_the_weight_of_a_row_multiplies_its_loss_once(spec, make_batch):
    batch = make_batch(0)
    half = Batch(**{**vars_of(batch), "weight": batch.weight / 2})
    losses = [float(dqn(spec, **RAINBOW).update(each).metrics["loss"]) for each in (batch, half)]
    assert losses[1] == pytest.approx(losses[0] / 2, rel=1e-6)


def vars_of(batch: Batch) -> dict[str, Any]:
    names = ("obs", "action", "reward", "discount", "next_obs", "weight", "index")
    return {name: getattr(batch, name) for name in names}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"exploration": Exploration.greedy}, r"agent\.exploration .*agent\.noisy=true.*'greedy'"),
        ({"num_atoms": 0}, r"agent\.num_atoms must be at least 1"),
        (
            {"num_atoms": 2, "v_min": 2.0, "v_max": 2.0},
            r"agent\.v_max must be above agent\.v_min \(2\), got 2",
        ),
        ({"temperature": 2.0}, r"agent\.temperature needs agent\.exploration=softmax, got 2"),
        (
            {"temperature": 2.0, "noisy": True, "exploration": Exploration.greedy},
            r"agent\.temperature needs agent\.exploration=softmax",
        ),
        ({"num_atoms": 5, "loss": Loss.mse}, r"agent\.loss .*agent\.num_atoms=5, got 'mse'"),
        ({"noisy_std": 0.0}, r"agent\.noisy_std must be above 0"),
        ({"conservative_weight": -1.0}, r"agent\.conservative_weight must be at least 0"),
        ({"adam_epsilon": 0.0}, r"agent\.adam_epsilon must be above 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        DqnConfig(**settings)


def test_settings_of_what_is_off_may_stay_where_files_and_ablations_have_them():
    settings = {"v_min": 20.0, "noisy_std": 0.3, "epsilon_final": 0.2}
    config = DqnConfig(**settings, exploration=Exploration.softmax, temperature=2.0)
    assert (config.v_min, config.v_max) == (20, 10)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "form", [{"num_atoms": 11}, {"conservative_weight": 0.5}, {"dueling": True}, RAINBOW]
)
def test_a_compiled_agent_learns_what_an_eager_one_learns(spec, make_batch, form: dict[str, Any]):
    eager, compiled = dqn(spec, **form), dqn(spec, compile=True, batch_size=8, **form)
    with compiled.learner_thread():
        found = after(compiled, make_batch)
    np.testing.assert_allclose(found, after(eager, make_batch), rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("form", [{"dueling": True}, RAINBOW])
def test_a_gpu_learns_what_the_cpu_learns(spec, make_batch, form: dict[str, Any]):
    config = DqnConfig(hidden=[6, 5], **form)
    cpu, gpu = (Dqn(config, spec=spec, device=each, seed=1) for each in ("cpu", "cuda"))
    np.testing.assert_allclose(after(gpu, make_batch), after(cpu, make_batch), rtol=1e-3, atol=1e-5)


def one_each_step(rows: int = 8) -> Batch:
    """As of a pole that never falls."""
    return Batch(
        obs=np.zeros((rows, 3), np.float32),
        action=np.arange(rows) % 2,
        reward=np.ones(rows, np.float32),
        discount=np.full(rows, 0.99, np.float32),
        next_obs=np.zeros((rows, 3), np.float32),
        weight=np.ones(rows, np.float32),
        index=np.arange(rows),
    )


@pytest.mark.parametrize("settings", [{}, {"dueling": True}], ids=["plain", "dueling"])
def test_a_range_too_narrow_for_the_rewards_is_said_in_training(spec, caplog, settings):
    agent = dqn(spec, num_atoms=51, target_interval=10, tau=1.0, **settings)
    told = [agent.update(one_each_step()).metrics for _ in range(900)]
    assert [i for i, each in enumerate(told, 1) if "beyond_v_max" in each] == list(
        range(100, 901, 100)
    )
    assert float(told[-1]["beyond_v_max"]) > 0.9
    assert float(told[-1]["beyond_v_min"]) == 0
    [message] = caplog.messages
    assert message.startswith("agent.v_max=10 is too low: ")
    assert message.endswith("In a new run, try agent.v_max=100")


def test_a_range_that_fits_the_rewards_is_not_said_however_high_values_are(spec, caplog):
    agent = dqn(spec, num_atoms=51, v_min=0.0, v_max=100.0, target_interval=1, tau=0.2)
    told = [agent.update(one_each_step()).metrics for _ in range(1500)]
    assert float(told[-1]["q_mean"]) > 90
    assert {float(each["beyond_v_max"]) for each in told if "beyond_v_max" in each} == {0.0}
    assert not caplog.records


def test_values_alone_have_no_range_to_look_at(spec, make_batch):
    agent = dqn(spec)
    assert not any("beyond_v_max" in agent.update(make_batch(i)).metrics for i in range(100))
