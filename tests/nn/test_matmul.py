"""The oneDNN matmul backend: accuracy compared with torch, and when torch is used instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from border_cli.nn import dense, matmul
from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import linear
from border_cli.nn.ensemble import Critics
from border_cli.nn.matmul import (
    choose_matmul,
    describe_matmul,
    has_onednn,
    product,
    rounds_convolutions,
    suits_onednn,
)
from border_cli.nn.network import Network
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.value_network import ValueNetwork
from border_cli.settings.networks import Matmul, MatmulPrecision
from tests.support.case_sampling import sampled
from tests.support.spaces import box

pytestmark = pytest.mark.skipif(not has_onednn(), reason="needs a torch with oneDNN")

SPACE = box((17,), low=-1)
AMD, INTEL = ("AuthenticAMD", "AVX512"), ("GenuineIntel", "AVX512")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Records the shapes of products computed by oneDNN."""
    shapes: list[tuple[int, ...]] = []

    def counting(left: Tensor, right: Tensor, *rest: Any, onednn: bool) -> Tensor:
        if onednn and suits_onednn(left, right):
            shapes.append((*left.shape, right.shape[1]))
        return product(left, right, *rest, onednn=onednn)

    monkeypatch.setattr(dense, "product", counting)
    return shapes


def error(result: Tensor, exact: Tensor) -> float:
    return (result.double() - exact).abs().max().item()


@pytest.mark.parametrize("name", ["affine", "affine and ReLU", "by inputs", "by weights"])
@pytest.mark.parametrize(("rows", "size"), sampled([(64, 256), (256, 256), (700, 63)], every=2))
def test_products_are_as_exact_as_torchs(name: str, rows: int, size: int) -> None:
    inputs, weight, bias = normal(rows, size), normal(size + 1, size, seed=1), normal(size + 1)
    grad_output = normal(rows, size + 1, seed=2)
    cases: dict[str, tuple[Any, ...]] = {
        "affine": (inputs, weight.t(), bias),
        "affine and ReLU": (inputs, weight.t(), bias, "relu"),
        "by inputs": (grad_output, weight),
        "by weights": (grad_output.t(), inputs),
    }
    operands = cases[name]
    doubled = (operand.double() if isinstance(operand, Tensor) else operand for operand in operands)
    exact = product(*doubled, onednn=False)
    torch_error = error(product(*operands, onednn=False), exact)
    one_ulp = 2**-23 * exact.abs().max().item()  # for the largest value
    assert suits_onednn(*operands[:2])
    assert error(product(*operands, onednn=True), exact) <= 2 * torch_error + one_ulp


def test_rows_may_have_more_than_one_dimension(calls: list[tuple[int, ...]]) -> None:
    rows, weight, bias = normal(8, 32, 64), normal(128, 64), normal(128)
    outputs = linear(rows, weight, bias, onednn=True)
    assert outputs.shape == (8, 32, 128)
    torch.testing.assert_close(outputs, linear(rows, weight, bias, onednn=False))
    assert calls == [(256, 64, 128)]


# Operands that are unsuitable for exactly one reason.
UNFIT: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "few rows": lambda rows, weight: (rows[:3], weight),
    "few inputs": lambda rows, weight: (rows[:, :4].contiguous(), weight[:, :4].contiguous()),
    "float64": lambda rows, weight: (rows.double(), weight.double()),
    "every other column": lambda rows, weight: (rows[:, ::2], weight[:, ::2]),
    "no rows": lambda rows, weight: (rows[:0], weight),
}


@pytest.mark.parametrize("case", UNFIT)
def test_unsuitable_operands_are_multiplied_by_torch(
    case: str, calls: list[tuple[int, ...]]
) -> None:
    rows, weight = UNFIT[case](normal(128, 256), normal(256, 256, seed=1))
    bias = torch.ones(256, dtype=rows.dtype)
    operands = rows, weight.t(), bias
    assert torch.equal(product(*operands, onednn=True), product(*operands, onednn=False))
    assert torch.equal(
        linear(rows, weight, bias, onednn=True), linear(rows, weight, bias, onednn=False)
    )
    assert calls == []


ARCHITECTURE = Architecture(observation=SPACE, hidden=(192, 160))
HIGHEST = MatmulPrecision.highest
ROWS = 96


def network(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    return Network(form, 3, seeded()), (normal(ROWS, 17),)


def ensemble(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    return Critics(form, 2, 3, seeded()), (normal(ROWS, 17), normal(ROWS, 2))


def quantiles(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    fractions = torch.rand(ROWS, 4, generator=torch.Generator().manual_seed(3))
    return QuantileNetwork(form, 64, 3, seeded()), (normal(ROWS, 17), fractions)


def noisy(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    built = ValueNetwork(form, 3, seeded(), dueling=True, noisy_std=0.5, atoms=5)
    return built, (normal(ROWS, 17), normal(built.draws))


def seeded() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize("make", [network, ensemble, quantiles, noisy])
@pytest.mark.parametrize("layer_norm", sampled([False, True], every=2))
def test_gradients_are_as_exact_as_torchs(
    make: Any, layer_norm: bool, calls: list[tuple[int, ...]]
) -> None:
    def gradient(matmul: Matmul, dtype: torch.dtype) -> list[Tensor]:
        form = Architecture(
            observation=SPACE, hidden=(192, 160), layer_norm=layer_norm, matmul=matmul
        )
        module, inputs = make(form)
        module = module.to(dtype)
        rows = [tensor.to(dtype).requires_grad_() for tensor in inputs]
        loss = module(*rows).square().mean()
        return [*torch.autograd.grad(loss, [*module.parameters(), rows[0]])]

    exact = gradient(Matmul.mkl, torch.float64)
    with_torch = gradient(Matmul.mkl, torch.float32)
    assert calls == []
    with_onednn = gradient(Matmul.onednn, torch.float32)
    assert len(calls) >= 3
    for onednn_gradient, torch_gradient, reference in zip(
        with_onednn, with_torch, exact, strict=True
    ):
        assert error(onednn_gradient, reference) <= 2 * error(torch_gradient, reference) + 1e-7


def test_only_the_gradients_that_are_asked_for_are_computed(calls: list[tuple[int, ...]]) -> None:
    rows, weight = normal(128, 256), normal(256, 256, seed=1).requires_grad_()
    linear(rows, weight, torch.ones(256), onednn=True).square().sum().backward()
    assert len(calls) == 2  # forward, and the gradient with respect to the weight
    calls.clear()
    rows.requires_grad_()
    linear(rows, weight.detach(), torch.ones(256), onednn=True).square().sum().backward()
    assert len(calls) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("precision", list(MatmulPrecision))
def test_products_on_a_gpu_are_torchs(
    precision: MatmulPrecision, calls: list[tuple[int, ...]]
) -> None:
    form = replace(ARCHITECTURE, matmul=Matmul.onednn, matmul_precision=precision)
    built = Network(form, 3, seeded()).to("cuda")
    rows = normal(ROWS, 17).to("cuda")
    torch.autograd.grad(built(rows).sum(), list(built.parameters()))
    assert calls == []


def test_convolutions_are_rounded_at_medium_where_the_processor_multiplies_bfloat16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    medium = replace(ARCHITECTURE, matmul_precision=MatmulPrecision.medium)
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: True)
    assert rounds_convolutions(medium)
    assert not rounds_convolutions(replace(medium, matmul_precision=MatmulPrecision.high))
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: False)
    assert not rounds_convolutions(medium)


@pytest.mark.parametrize(("has", "said"), [(True, False), (False, True)])
def test_medium_precision_without_bfloat16_units_is_reported(
    has: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: has)
    line = describe_matmul(Matmul.mkl, MatmulPrecision.medium)
    assert ("no bfloat16 units" in line) == said
    assert "bfloat16" not in describe_matmul(Matmul.mkl, HIGHEST)


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (AMD, Matmul.onednn),
        (("AuthenticAMD", "AVX2"), Matmul.mkl),
        (INTEL, Matmul.mkl),
        (("", "DEFAULT"), Matmul.mkl),
    ],
)
def test_the_rule_reads_the_processor_and_what_is_set_wins(
    processor: tuple[str, str], expected: Matmul, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "processor", lambda: processor)
    assert choose_matmul(Matmul.auto, HIGHEST) == expected
    assert choose_matmul(Matmul.auto, MatmulPrecision.medium) == Matmul.mkl
    for typed in (Matmul.mkl, Matmul.onednn):
        assert choose_matmul(typed, HIGHEST) == typed


def test_the_header_says_what_multiplies_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "processor", lambda: AMD)
    line = describe_matmul(Matmul.auto, HIGHEST)
    assert line == "oneDNN (agent.matmul=auto; AuthenticAMD, AVX512)"
    monkeypatch.setattr(matmul, "has_onednn", lambda: False)
    for setting in (Matmul.auto, Matmul.onednn):
        assert "oneDNN" not in describe_matmul(setting, HIGHEST)
