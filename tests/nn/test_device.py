"""Device, threads and precision of a learner in torch."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from border_cli.errors import ConfigError
from border_cli.nn.device import learner_thread, refuse_other_dtype, resolve_device

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def test_another_default_dtype_is_refused_in_one_line():
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(
            ConfigError, match=r"has called torch\.set_default_dtype\(torch\.float64"
        ):
            refuse_other_dtype()
    finally:
        torch.set_default_dtype(torch.float32)


def test_gradients_that_were_switched_off_are_on_in_the_learners_thread():
    with torch.no_grad(), learner_thread(1):
        assert torch.is_grad_enabled()


def test_the_cpu_is_always_there():
    assert str(resolve_device("cpu")) == "cpu"


@no_gpu
def test_auto_is_the_cpu_where_there_is_no_gpu():
    assert str(resolve_device("auto")) == "cpu"


@no_gpu
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_missing_gpu_is_refused_by_name(name: str):
    with pytest.raises(ConfigError, match=f"device={name}.*allowed: auto, cpu"):
        resolve_device(name)


@pytest.mark.parametrize("name", ["tpu", "meta", "", "cpu:x"])
def test_an_unknown_device_is_refused(name: str):
    with pytest.raises(ConfigError, match=f"device={name} is not available"):
        resolve_device(name)


def test_gpus_are_chosen_by_number_and_those_that_are_not_there_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match=r"cuda:2 .*allowed: auto, cpu, cuda, cuda:0, cuda:1\)"):
        resolve_device("cuda:2")


def test_mps_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device=mps is not available"):
        resolve_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("mps") == torch.device("mps")


def test_a_learner_sets_threads_and_flushes_denormals_and_restores_both():
    def seen() -> list[float | str]:
        tiny = torch.full((8,), 1e-38) * 0.01  # 1e-40 is below the smallest normal float32
        precision = torch.get_float32_matmul_precision()
        return [torch.get_num_threads(), float(tiny.sum()), precision]

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = seen()
        with learner_thread(num_threads=1):
            assert seen() == [1, 0, "highest"]
        with learner_thread(num_threads=3, matmul_precision="medium"):
            assert seen() == [3, 0, "medium"]
        assert seen() == before
        assert (before[0], before[2]) == (2, "highest")
        assert before[1] > 0
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_torchs_other_threads_flush_denormals_as_the_learner_does():
    """Runs in a separate process, because torch's other threads keep their initial settings."""
    code = """if True:
        import numpy as np, torch
        from border_cli.agent.config import DqnConfig
        from border_cli.agent.dqn import Dqn
        from border_cli.core.spaces import DiscreteSpace, EnvSpec
        torch.set_num_threads(2)  # as on a machine with two cores
        two = DiscreteSpace(2)
        spec = EnvSpec(id="x", observation=two, action=two, max_episode_steps=None)
        config = DqnConfig(backend="torch", num_threads=2, hidden=[300, 300])
        agent = Dqn(config, spec=spec, device="cpu", seed=0)
        assert torch.get_num_threads() == 2
        with agent.learner_thread():
            assert torch.get_num_threads() == 2
            tiny = torch.full((1_000_000,), 1e-38)
            bits = (tiny * 0.01).numpy().view("i4")  # as a float, a denormal may compare equal to 0
        assert not bits.any(), np.count_nonzero(bits)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_thread_that_acts_leaves_the_learner_its_threads():
    with learner_thread(2):
        acting = threading.Thread(target=torch.set_num_threads, args=(1,))
        acting.start()
        acting.join()
        assert torch.get_num_threads() == 2
