"""Compiled functions: errors before and during compilation, copied results, equal values."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest
import torch

from border_cli.errors import ConfigError, RunFailed
from border_cli.nn.compile import Compiled, copy_tensors, refuse_without_compiler
from tests.support.case_sampling import weekly
from tests.support.compilers import needs_compiler

CPU = torch.device("cpu")


def double(values: torch.Tensor) -> torch.Tensor:
    return values * 2


def test_a_missing_compiler_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    match = r"agent\.compile=true needs a C\+\+ compiler, but no-such-compiler was not found.*CXX"
    with pytest.raises(ConfigError, match=match):
        Compiled(double, CPU)


def test_a_compiler_on_the_path_is_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", sys.executable)  # any executable; nothing is compiled yet
    refuse_without_compiler(CPU)


@pytest.mark.slow
def test_the_compiler_of_torch_is_imported_by_the_first_call_only():
    code = """if True:
        import sys, torch
        from border_cli.nn.compile import Compiled
        Compiled(torch.neg, torch.device("cpu"))
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@pytest.mark.slow
@needs_compiler
def test_what_cannot_be_compiled_ends_the_run_with_the_name_of_the_setting():
    def reads_a_value(values: torch.Tensor) -> torch.Tensor:
        return values if values.numpy().tobytes() else -values

    with pytest.raises(RunFailed, match=r"agent\.compile=true: torch .* could not compile"):
        Compiled(reads_a_value, CPU)(torch.ones(2))


def test_copies_are_those_of_all_tensors_and_gradients_flow_through_them():
    class Result(NamedTuple):
        loss: torch.Tensor
        tensors: dict[str, torch.Tensor]
        gap: torch.Tensor | None = None

    weight = torch.ones(2, requires_grad=True)
    result = (weight * 3).sum(), Result(torch.zeros(2), {"a": torch.ones(1)}), [torch.zeros(1)]
    loss, copy, listed = copy_tensors(result)
    result[1].loss.fill_(7)
    result[1].tensors["a"].fill_(7)
    result[2][0].fill_(7)
    assert [tensor.tolist() for tensor in listed] == [[0]]
    assert isinstance(copy, Result)
    assert (copy.loss.tolist(), copy.tensors["a"].tolist(), copy.gap) == ([0, 0], [1], None)
    assert torch.autograd.grad(loss, weight)[0].tolist() == [3, 3]


@weekly
@pytest.mark.slow
@needs_compiler
def test_a_compiled_function_gives_what_the_function_gives():
    compiled = Compiled(double, CPU)
    for number in (1.0, 5.0):
        assert compiled(torch.full((3,), number)).tolist() == [2 * number] * 3
