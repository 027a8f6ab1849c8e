"""Products of dense layers by oneDNN: the values and gradients of torch's own, or torch's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from boxes import box
from sampling import sampled
from torch import Tensor, nn

from border_cli.nn import matmul
from border_cli.nn.architecture import Architecture
from border_cli.nn.dense import linear
from border_cli.nn.device import learner_thread
from border_cli.nn.ensemble import Critics
from border_cli.nn.matmul import (
    BFLOAT16,
    MKL,
    ONE_DNN,
    OneDnnProducts,
    Processor,
    chosen_matmul,
    has_bfloat16,
    has_onednn,
    matmul_line,
    preferred,
    products_of,
    rounds_convolutions,
)
from border_cli.nn.network import Network, polyak_update, target_of, without_gradient
from border_cli.nn.optimizer import Adam
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.value_network import ValueNetwork
from border_cli.settings.networks import Matmul, MatmulPrecision

pytestmark = pytest.mark.skipif(not has_onednn(), reason="needs a torch with oneDNN")

SPACE = box((17,), low=-1)
AMD, INTEL = Processor("AuthenticAMD", "AVX512"), Processor("GenuineIntel", "AVX512")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The shapes of oneDNN's products."""
    found: list[tuple[int, ...]] = []

    def counting(self: OneDnnProducts, left: Tensor, right: Tensor, *rest: Any) -> Tensor:
        if self.suit(left, right):
            found.append((*left.shape, right.shape[1]))
        return product(self, left, right, *rest)

    product = OneDnnProducts.product
    monkeypatch.setattr(OneDnnProducts, "product", counting)
    return found


def error(found: Tensor, exact: Tensor) -> float:
    return (found.double() - exact).abs().max().item()


@pytest.mark.parametrize("name", ["affine", "affine and ReLU", "by inputs", "by weights"])
@pytest.mark.parametrize(("rows", "size"), sampled([(64, 256), (256, 256), (700, 63)], every=2))
def test_products_are_as_exact_as_torchs(
    name: str, rows: int, size: int, calls: list[tuple[int, ...]]
) -> None:
    inputs, weight, bias = normal(rows, size), normal(size + 1, size, seed=1), normal(size + 1)
    grad_output = normal(rows, size + 1, seed=2)
    given: dict[str, tuple[Any, ...]] = {
        "affine": (inputs, weight.t(), bias),
        "affine and ReLU": (inputs, weight.t(), bias, "relu"),
        "by inputs": (grad_output, weight),
        "by weights": (grad_output.t(), inputs),
    }
    operands = given[name]
    doubled = (each.double() if isinstance(each, Tensor) else each for each in operands)
    exact = MKL.product(*doubled)
    theirs = error(MKL.product(*operands), exact)
    one_ulp = 2**-23 * exact.abs().max().item()  # of the largest, which either rounds
    assert error(ONE_DNN.product(*operands), exact) <= 2 * theirs + one_ulp
    assert len(calls) == 1


def test_rows_may_have_more_than_one_dimension(calls: list[tuple[int, ...]]) -> None:
    rows, weight, bias = normal(8, 32, 64), normal(128, 64), normal(128)
    found = linear(rows, weight, bias, ONE_DNN)
    assert found.shape == (8, 32, 128)
    torch.testing.assert_close(found, linear(rows, weight, bias, MKL))
    assert calls == [(256, 64, 128)]


# Each fits but for one thing.
UNFIT: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "few rows": lambda rows, weight: (rows[:3], weight),
    "few inputs": lambda rows, weight: (rows[:, :4].contiguous(), weight[:, :4].contiguous()),
    "float64": lambda rows, weight: (rows.double(), weight.double()),
    "every other column": lambda rows, weight: (rows[:, ::2], weight[:, ::2]),
    "no rows": lambda rows, weight: (rows[:0], weight),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_is_torchs(case: str, calls: list[tuple[int, ...]]) -> None:
    rows, weight = UNFIT[case](normal(128, 256), normal(256, 256, seed=1))
    bias = torch.ones(256, dtype=rows.dtype)
    operands = rows, weight.t(), bias
    assert torch.equal(ONE_DNN.product(*operands), MKL.product(*operands))
    assert torch.equal(linear(rows, weight, bias, ONE_DNN), linear(rows, weight, bias, MKL))
    assert calls == []


ARCHITECTURE = Architecture(observation=SPACE, hidden=(192, 160))
ROWS = 96


def network(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    return Network(form, 3, generator()), (normal(ROWS, 17),)


def ensemble(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    return Critics(form, 2, 3, generator()), (normal(ROWS, 17), normal(ROWS, 2))


def quantiles(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    fractions = torch.rand(ROWS, 4, generator=generator())
    return QuantileNetwork(form, 64, 3, generator()), (normal(ROWS, 17), fractions)


def noisy(form: Architecture) -> tuple[nn.Module, tuple[Any, ...]]:
    made = ValueNetwork(form, 3, generator(), dueling=True, noisy_std=0.5, atoms=5)
    return made, (normal(ROWS, 17), normal(made.draws))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


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
        rows = [each.to(dtype).requires_grad_() for each in inputs]
        loss = module(*rows).square().mean()
        return [*torch.autograd.grad(loss, [*module.parameters(), rows[0]])]

    exact = gradient(Matmul.mkl, torch.float64)
    theirs = gradient(Matmul.mkl, torch.float32)
    assert calls == []
    ours = gradient(Matmul.onednn, torch.float32)
    assert len(calls) >= 3
    for found, torchs, reference in zip(ours, theirs, exact, strict=True):
        assert error(found, reference) <= 2 * error(torchs, reference) + 1e-7


def test_only_the_gradients_that_are_asked_for_are_computed(calls: list[tuple[int, ...]]) -> None:
    rows, weight = normal(128, 256), normal(256, 256, seed=1).requires_grad_()
    linear(rows, weight, torch.ones(256), ONE_DNN).square().sum().backward()
    assert len(calls) == 2  # forward, and by the weight
    calls.clear()
    rows.requires_grad_()
    linear(rows, weight.detach(), torch.ones(256), ONE_DNN).square().sum().backward()
    assert len(calls) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("precision", list(MatmulPrecision))
def test_products_on_a_gpu_are_torchs(
    precision: MatmulPrecision, calls: list[tuple[int, ...]]
) -> None:
    form = replace(ARCHITECTURE, matmul=Matmul.onednn, matmul_precision=precision)
    made = Network(form, 3, generator()).to("cuda")
    rows = normal(ROWS, 17).to("cuda")
    torch.autograd.grad(made(rows).sum(), list(made.parameters()))
    assert calls == []


bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="needs oneDNN's bfloat16")

MEDIUM = replace(ARCHITECTURE, matmul=Matmul.onednn, matmul_precision=MatmulPrecision.medium)


@bfloat16
@pytest.mark.parametrize("make", [network, ensemble, quantiles, noisy])
def test_gradients_from_bfloat16_copies_are_as_exact_as_torchs_medium(make: Any) -> None:
    def gradient(form: Architecture, precision: str = "highest") -> list[Tensor]:
        module, inputs = make(form)
        with learner_thread(1, precision):
            return [*torch.autograd.grad(module(*inputs).square().mean(), [*module.parameters()])]

    exact = gradient(ARCHITECTURE)
    theirs, ours = gradient(ARCHITECTURE, "medium"), gradient(MEDIUM)
    assert any(not torch.equal(a, b) for a, b in zip(exact, ours, strict=True))
    for found, torchs, reference in zip(ours, theirs, exact, strict=True):
        assert found.dtype is torch.float32
        # A torch that knows no bfloat16 here rounds nothing, and 2**-9 grows where a ReLU closes.
        bound = max(2 * (torchs - reference).norm(), 0.05 * reference.norm())
        assert (found - reference).norm() <= bound


@bfloat16
def test_a_weight_is_converted_once_for_each_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Network(MEDIUM, 3, generator())
    adam, rows = Adam(made.parameters(), learning_rate=0.01), normal(ROWS, 17)
    alike, frozen = target_of(made), without_gradient(made)
    converted: list[tuple[int, ...]] = []
    convert = Tensor.bfloat16
    monkeypatch.setattr(
        Tensor, "bfloat16", lambda each: converted.append(tuple(each.shape)) or convert(each)
    )

    def weights_converted() -> int:
        return sum(each == (160, 192) for each in converted)

    made(rows), made(rows)
    assert weights_converted() == 1
    adam.minimize(made(rows).square().mean())
    assert weights_converted() == 1
    assert sum(each == (ROWS, 192) for each in converted) == 3  # one for each forward pass
    made(rows), alike(rows)
    assert weights_converted() == 3
    assert not torch.equal(made(rows), alike(rows))
    with torch.no_grad():
        polyak_update(alike.parameters(), made.parameters(), 1)
    assert torch.equal(made(rows), alike(rows))
    assert torch.equal(made(rows), frozen(rows))
    made.load_state_dict(Network(MEDIUM, 3, torch.Generator().manual_seed(4)).state_dict())
    assert torch.equal(made(rows), frozen(rows))
    assert not torch.equal(made(rows), alike(rows))


@bfloat16
def test_copies_die_with_what_they_are_copies_of() -> None:
    made = Network(MEDIUM, 3, generator())
    torch.autograd.grad(made(normal(ROWS, 17)).sum(), list(made.parameters()))
    kept = len(BFLOAT16._copies)
    torch.autograd.grad(made(normal(ROWS, 17)).sum(), list(made.parameters()))
    assert len(BFLOAT16._copies) == kept
    del made
    assert len(BFLOAT16._copies) < kept


def test_bfloat16_is_only_for_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: True)
    assert products_of(MEDIUM) is BFLOAT16
    assert products_of(replace(MEDIUM, matmul_precision=MatmulPrecision.high)) is ONE_DNN
    assert products_of(replace(MEDIUM, matmul=Matmul.mkl)) is MKL
    assert rounds_convolutions(replace(MEDIUM, matmul=Matmul.mkl))
    assert not rounds_convolutions(replace(MEDIUM, matmul_precision=MatmulPrecision.high))
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: False)
    assert products_of(MEDIUM) is ONE_DNN
    assert not rounds_convolutions(MEDIUM)


@pytest.mark.parametrize(("has", "said"), [(True, False), (False, True)])
def test_medium_without_units_for_it_is_said(
    has: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "has_bfloat16", lambda: has)
    line = matmul_line(Matmul.mkl, Matmul.mkl, MatmulPrecision.medium)
    assert ("no bfloat16 units" in line) == said
    assert "bfloat16" not in matmul_line(Matmul.mkl, Matmul.mkl)


def test_the_rule_reads_the_processor() -> None:
    assert preferred(AMD) == Matmul.onednn
    assert preferred(AMD._replace(capability="AVX2")) == Matmul.mkl
    assert preferred(INTEL) == Matmul.mkl
    assert preferred(Processor("", "DEFAULT")) == Matmul.mkl


@contextmanager
def on(processor: Processor) -> Iterator[None]:
    """Within the block this machine has another processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul, "this_processor", lambda: processor)
        chosen_matmul.cache_clear()
        try:
            yield
        finally:
            chosen_matmul.cache_clear()


def test_what_is_set_wins_over_the_rule() -> None:
    with on(AMD):
        assert chosen_matmul(Matmul.auto) == Matmul.onednn
        assert chosen_matmul(Matmul.mkl) == Matmul.mkl
        assert products_of(ARCHITECTURE) is ONE_DNN
        assert matmul_line(Matmul.auto, Matmul.onednn) == "oneDNN (agent.matmul=auto: AMD, AVX512)"
        assert matmul_line(Matmul.mkl, Matmul.mkl).endswith(" (agent.matmul=mkl)")


def test_without_onednn_a_run_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(matmul, "has_onednn", lambda: False)
    with on(AMD), caplog.at_level(logging.WARNING):
        assert products_of(replace(ARCHITECTURE, matmul=Matmul.onednn)) is MKL
        assert preferred(AMD) == Matmul.mkl
    assert "has no oneDNN here; using mkl" in caplog.text
