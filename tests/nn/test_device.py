"""Where the learner computes, and what is refused."""

from __future__ import annotations

import pytest
import torch

from border_cli.core.errors import ConfigError
from border_cli.nn.device import learner_thread, resolve_device

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


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
    with pytest.raises(ConfigError, match="device must be auto, cpu or cuda, got"):
        resolve_device(name)


def test_a_learner_computes_alone_and_without_denormals_and_leaves_no_trace():
    def seen() -> list[float]:
        tiny = torch.full((8,), 1e-38) * 0.01  # 1e-40 is below the smallest normal float32
        return [torch.get_num_threads(), float(tiny.sum())]

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = seen()
        with learner_thread():
            assert seen() == [1, 0]
        assert seen() == before
        assert before[0] == 2
        assert before[1] > 0
    finally:
        torch.set_num_threads(threads)
