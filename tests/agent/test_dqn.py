"""Deep Q-network: target updates, variants, noise and invalid settings."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import DqnConfig, Exploration, Loss
from border_cli.agent.dqn import Dqn
from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec, MultiDiscreteSpace, Space
from border_cli.core.types import Batch
from border_cli.errors import ConfigError
from border_cli.nn.batch import TDResult
from border_cli.registry import AGENTS
from tests.support.case_sampling import sampled
from tests.support.continuous_env import data_set
from tests.support.libraries import LIBRARIES, both_backends
from tests.support.spaces import box, drawn, numbers, pixels, reals


def dqn(spec: EnvSpec, seed: int = 1, **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [5, 4], "learning_rate": 0.01, **settings})
    agent: Dqn = AGENTS.build(config, spec=spec, device="cpu", seed=seed)
    return agent


def weights(agent: Dqn, which: str = "online") -> np.ndarray:
    return np.concatenate([array.ravel() for array in agent.state_dict()[which].values()])


def train(agent: Dqn, make_batch: Any, seeds: range) -> Dqn:
    for seed in seeds:
        agent.update(make_batch(seed))
    return agent


@both_backends
def test_the_target_starts_equal_and_is_copied_at_each_interval(spec, make_batch, backend: str):
    agent = dqn(spec, target_interval=2, tau=1.0, backend=backend)
    first = weights(agent)
    np.testing.assert_array_equal(weights(agent, "target"), first)
    agent.update(make_batch(0))
    np.testing.assert_array_equal(weights(agent, "target"), first)
    assert (weights(agent) != first).any()
    agent.update(make_batch(1))
    np.testing.assert_array_equal(weights(agent, "target"), weights(agent))
    agent.update(make_batch(2))
    assert (weights(agent, "target") != weights(agent)).any()


@both_backends
def test_a_soft_target_moves_by_tau_towards_the_online_network(spec, make_batch, backend: str):
    agent = dqn(spec, target_interval=1, tau=0.25, backend=backend)
    target = weights(agent)
    for seed in range(3):
        agent.update(make_batch(seed))
        target = 0.25 * weights(agent) + 0.75 * target
        np.testing.assert_allclose(weights(agent, "target"), target, rtol=1e-5, atol=1e-7)


@both_backends
def test_an_update_counts_and_reports(spec, make_batch, backend: str):
    agent = dqn(spec, backend=backend)
    batch = make_batch(0)
    update = agent.update(batch)
    assert agent.opt_steps == 1
    assert set(update.metrics) == {"loss", "q_mean", "grad_norm"}
    for metric in update.metrics.values():
        assert np.ndim(metric) == 0
        assert not getattr(metric, "requires_grad", False)
    error = update.td_error()
    assert error.shape == (8,)
    huber = np.where(np.abs(error) < 1, 0.5 * error**2, np.abs(error) - 0.5)
    assert float(update.metrics["loss"]) == pytest.approx((batch.weight * huber).mean(), rel=1e-5)


@both_backends
def test_td_errors_stay_when_the_buffer_reuses_the_arrays_of_the_batch(
    spec, make_batch, backend: str
):
    agent, batch = dqn(spec, backend=backend), make_batch(0)
    update = agent.update(batch)
    before = update.td_error().copy()
    for values in (batch.obs, batch.reward, batch.discount, batch.next_obs, batch.weight):
        values[:] = 99
    np.testing.assert_array_equal(update.td_error(), before)


@both_backends
def test_a_snapshot_never_changes(spec, make_batch, backend: str):
    agent = dqn(spec, backend=backend)
    agent.update(make_batch(0))
    snapshot = agent.snapshot(env_steps=70, warm_up=True)
    assert (snapshot.opt_steps, snapshot.env_steps, snapshot.warm_up) == (1, 70, True)
    online = agent.state_dict()["online"]
    assert list(snapshot.arrays) == [f"network.{name}" for name in online]
    train(agent, make_batch, range(1, 4))
    for name, array in snapshot.arrays.items():
        np.testing.assert_array_equal(array, online[name.removeprefix("network.")])
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@both_backends
def test_a_state_taken_now_does_not_change_later(spec, make_batch, backend: str):
    agent = dqn(spec, backend=backend)
    state = agent.state_dict()
    online = {name: array.copy() for name, array in state["online"].items()}
    agent.update(make_batch(0))
    assert all((state["online"][name] == array).all() for name, array in online.items())
    assert not any(mean.any() for mean in state["optimizer"]["means"])


def test_actions_that_cannot_be_counted_are_refused(spec):
    match = r"agent=dqn needs a Discrete, .* action space; env\.id=Tiny-v0 has Box\(0, 1, \(3,\), f"
    with pytest.raises(ConfigError, match=match):
        dqn(replace(spec, action=numbers(3)))


def test_the_device_has_a_name(spec):
    assert dqn(spec).device_name == "cpu"


@pytest.mark.parametrize(
    ("backend", "absent"),
    sampled([("numpy", ["torch"]), ("torch", ["torch._dynamo", "torch._inductor"])], every=2),
)
def test_a_first_update_imports_no_more_than_it_needs(backend: str, absent: list[str]):
    """Importing torch takes longer than a small run, and importing torch._dynamo takes longer than
    all other imports that an update in torch needs."""
    code = f"""if True:
        import sys, numpy as np
        from border_cli.agent.config import DqnConfig
        from border_cli.agent.dqn import Dqn
        from border_cli.core.spaces import DiscreteSpace, EnvSpec
        from border_cli.core.types import Batch
        two = DiscreteSpace(2)
        spec = EnvSpec(id="x", observation=two, action=two, max_episode_steps=None)
        zero, one = np.zeros(1, "i8"), np.ones(1, "f4")
        batch = Batch(obs=zero, action=zero, reward=one, discount=one, next_obs=zero, weight=one,
                      index=zero)
        agent = Dqn(DqnConfig(backend="{backend}"), spec=spec, device="cpu", seed=0)
        agent.update(batch)
        agent.load_state_dict(agent.state_dict())
        assert not sys.modules.keys() & {absent}
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


RAINBOW: dict[str, Any] = {
    **{"double": True, "dueling": True, "noisy": True, "exploration": Exploration.greedy},
    **{"num_atoms": 11, "v_min": -3.0, "v_max": 3.0},
}


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
    before, after = (
        weights(train(dqn(spec, **{**RAINBOW, **overrides}), make_batch, range(5)))
        for overrides in ({}, change)
    )
    assert before.shape != after.shape or (before != after).any()


def test_each_update_draws_noise_for_each_of_its_passes(spec, make_batch):
    """With the same batch and weights the loss differs, because the noise state has advanced."""
    agent = dqn(spec, **RAINBOW)
    state, batch = agent.state_dict(), make_batch(0)
    first = float(agent.update(batch).metrics["loss"])
    moved = agent.state_dict()["noise"]
    agent.load_state_dict({**state, "noise": moved})
    assert float(agent.update(batch).metrics["loss"]) != first
    agent.load_state_dict(state)
    assert float(agent.update(batch).metrics["loss"]) == first


def test_three_draws_serve_three_passes(spec, make_batch, monkeypatch):
    """The online network uses the first draw for s, the target network uses the second for s', and
    the online network uses the third for s'."""
    agent, batch = dqn(spec, **RAINBOW), make_batch(0)
    fixed = agent.backend.normal(3, agent.online.draws)  # type: ignore[attr-defined]
    monkeypatch.setattr(agent.backend, "normal", lambda *_: fixed)
    passed = {}

    def td_loss(outputs: Any, next_outputs: Any, next_outputs_online: Any, _: Any) -> TDResult:
        passed.update(
            outputs=outputs, next_outputs=next_outputs, next_outputs_online=next_outputs_online
        )
        return TDResult(torch.zeros_like(outputs), torch.zeros(8, 1), {})

    agent.td_loss = td_loss  # type: ignore[assignment]
    obs, next_obs = (torch.from_numpy(array) for array in (batch.obs, batch.next_obs))
    expected = {
        "outputs": agent.online(obs, fixed[0]).detach(),
        "next_outputs": agent.target(next_obs, fixed[1]).detach(),
        "next_outputs_online": agent.online(next_obs, fixed[2]).detach(),
    }
    agent.update(batch)
    for name, tensor in expected.items():
        assert torch.equal(passed[name], tensor), name


def test_the_weight_of_a_row_multiplies_its_loss_once(spec, make_batch):
    batch = make_batch(0)
    half = replace(batch, weight=batch.weight / 2)
    losses = [float(dqn(spec, **RAINBOW).update(rows).metrics["loss"]) for rows in (batch, half)]
    assert losses[1] == pytest.approx(losses[0] / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"exploration": Exploration.greedy}, r"agent\.exploration .*agent\.noisy=true.*'greedy'"),
        (
            {"num_atoms": 2, "v_min": 2.0, "v_max": 2.0},
            r"agent\.v_max must be above agent\.v_min \(2\), got 2",
        ),
        ({"temperature": 2.0}, r"agent\.temperature needs agent\.exploration=softmax, got 2"),
        ({"num_atoms": 5, "loss": Loss.mse}, r"agent\.loss .*agent\.num_atoms=5, got 'mse'"),
    ],
)
def test_invalid_combinations_of_settings_are_refused(settings: dict[str, Any], match: str):
    with pytest.raises(ConfigError, match=match):
        DqnConfig(**settings)


def test_settings_of_disabled_features_are_accepted():
    settings = {"v_min": 20.0, "noisy_std": 0.3, "epsilon": {"final": 0.2}}
    config = DqnConfig(**settings, exploration=Exploration.softmax, temperature=2.0)
    assert (config.v_min, config.v_max) == (20, 10)


OBSERVATIONS: dict[str, Space] = {
    "doubles": box((3,), "float64", -5, 5),
    "matrix": reals(2, 3),
    "one number": reals(),
    "flags": box((4,), "bool"),
    "bytes": pixels(5),
    "integers": box((3,), "int64", -4, 4),
    "Discrete": DiscreteSpace(5),
    "MultiDiscrete": MultiDiscreteSpace((2, 3)),
    "Dict": DictSpace({"speed": reals(2), "gear": DiscreteSpace(3), "keys": pixels(2)}),
}


@pytest.mark.parametrize("space", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_observations_of_numbers_are_learned_from_in_numpy_as_in_torch(spec, make_batch, space):
    agents = [dqn(replace(spec, observation=space), backend=backend) for backend in LIBRARIES]
    for seed in range(5):
        obs, next_obs = (drawn(space, 8, seed=10 * seed + i) for i in range(2))
        for agent in agents:
            agent.update(replace(make_batch(seed), obs=obs, next_obs=next_obs))
    ours, expected = (weights(agent) for agent in agents)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("form", [{"target_interval": 2, "tau": 0.1}, {"dueling": True}, RAINBOW])
def test_a_gpu_learns_every_form_as_the_cpu_does(spec, make_batch, form: dict[str, Any]):
    config = DqnConfig(hidden=[6, 5], **form)
    cpu, gpu = (
        weights(train(Dqn(config, spec=spec, device=device, seed=1), make_batch, range(5)))
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-5)


def constant_rewards(rows: int = 8) -> Batch:
    """A batch in which every reward is 1, as for a pole that never falls."""
    nothing = np.zeros((rows, 3))
    return data_set(nothing, np.arange(rows) % 2, np.ones(rows), 0.99, nothing)


@pytest.mark.parametrize(
    "settings", sampled([{}, {"dueling": True}], every=2, ids=["plain", "dueling"])
)
def test_a_range_too_narrow_for_the_rewards_is_said_in_training(spec, caplog, settings):
    agent = dqn(spec, num_atoms=51, target_interval=10, tau=1.0, **settings)
    history = [agent.update(constant_rewards()).metrics for _ in range(900)]
    assert [i for i, metrics in enumerate(history, 1) if "beyond_v_max" in metrics] == list(
        range(100, 901, 100)
    )
    assert float(history[-1]["beyond_v_max"]) > 0.9
    assert float(history[-1]["beyond_v_min"]) == 0
    [message] = caplog.messages
    assert message.startswith("agent.v_max=10 is too low: ")
    assert message.endswith("In a new run, try agent.v_max=100")


def test_a_range_that_fits_the_rewards_is_not_said_however_high_values_are(spec, caplog):
    agent = dqn(spec, num_atoms=51, v_min=0.0, v_max=100.0, target_interval=1, tau=0.2)
    history = [agent.update(constant_rewards()).metrics for _ in range(1500)]
    assert float(history[-1]["q_mean"]) > 90
    assert {float(metrics["beyond_v_max"]) for metrics in history if "beyond_v_max" in metrics} == {
        0.0
    }
    assert not caplog.records


def test_values_alone_have_no_range_to_look_at(spec, make_batch):
    agent = dqn(spec)
    assert not any("beyond_v_max" in agent.update(make_batch(i)).metrics for i in range(100))
