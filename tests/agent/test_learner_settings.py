"""Settings for computing updates: compilation, threads and precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.agent.config import DqnConfig, MatmulPrecision
from border_cli.agent.dqn import Dqn
from border_cli.errors import ConfigError
from border_cli.settings.networks import Matmul
from tests.support.compilers import needs_compiler


def dqn(spec: Any, device: str = "cpu", **settings: Any) -> Dqn:
    config = DqnConfig(**{"hidden": [16, 16], "batch_size": 8, **settings})
    return Dqn(config, spec=spec, device=device, seed=1)


def weights(agent: Dqn) -> np.ndarray:
    return np.concatenate([array.ravel() for array in agent.snapshot().arrays.values()])


def train(agent: Dqn, make_batch: Any, updates: int) -> list[float]:
    with agent.learner_thread():
        return [float(agent.update(make_batch(k)).metrics["loss"]) for k in range(updates)]


def test_compile_is_refused_where_nothing_can_compile(spec, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"agent\.compile=true needs a C\+\+ compiler"):
        dqn(spec, compile=True)


@pytest.mark.slow
@needs_compiler
def test_compiling_changes_neither_weights_nor_counters(spec):
    agent, other = dqn(spec, compile=True), dqn(spec)
    with agent.learner_thread():
        assert agent.opt_steps == 0
        np.testing.assert_array_equal(weights(agent), weights(other))


@pytest.mark.gpu
@needs_compiler
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores", "ignore:The CUDA Graph is empty")
def test_a_cuda_graph_learns_what_the_cpu_learns(spec, make_batch):
    eager, compiled = dqn(spec), dqn(spec, device="cuda", compile=True)
    batches = [make_batch(k) for k in range(6)]
    with compiled.learner_thread():
        # Results are read only after the last update.
        updates = [compiled.update(batch) for batch in batches]
    expected = [eager.update(batch) for batch in batches]
    for actual, reference in zip(updates, expected, strict=True):
        np.testing.assert_allclose(actual.td_error(), reference.td_error(), rtol=1e-3, atol=1e-5)
        assert float(actual.metrics["loss"]) == pytest.approx(
            float(reference.metrics["loss"]), rel=1e-3
        )


def test_precision_and_threads_hold_while_the_learner_computes(spec):
    before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    medium = MatmulPrecision.medium
    agent = dqn(spec, matmul=Matmul.mkl, matmul_precision=medium, num_threads=2)
    assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == before
    with agent.learner_thread():
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_num_threads() == 2
    assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == before


def test_less_precise_products_lead_close_to_the_same_weights(spec, make_batch):
    exact = dqn(spec, hidden=[64, 64])
    loose = dqn(spec, hidden=[64, 64], matmul_precision=MatmulPrecision.medium)
    expected, losses = (train(agent, make_batch, 5) for agent in (exact, loose))
    np.testing.assert_allclose(losses, expected, rtol=0.05)  # bfloat16 has 8 bits of precision


@pytest.mark.parametrize("settings", [{"num_threads": 0}, {"num_threads": -1}])
def test_threads_that_cannot_be_are_refused(settings: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"agent\.num_threads must be at least 1"):
        DqnConfig(**settings)


def test_a_restored_agent_need_not_compute_as_the_saved_one_did(spec, make_batch):
    agent = dqn(spec, num_threads=2, matmul_precision=MatmulPrecision.high)
    train(agent, make_batch, 3)
    restored = dqn(spec)
    restored.load_state_dict(agent.state_dict())
    np.testing.assert_array_equal(weights(restored), weights(agent))
