"""Products of dense layers: torch's own, which are MKL's on x86, or oneDNN's.

MKL takes a slow path on AMD's processors. There oneDNN takes 0.4 to 0.7 of the time where a
product is large enough, and on Intel's it takes longer; `python -m benchmarks.matmul` measures it.
Both compute in full float32, and agree to rounding. With `agent.matmul_precision=medium`, oneDNN's
operands are bfloat16 copies, made once for all products of a weight or an activation; what a
product gives, the weights themselves and all that is summed over rows or updates stay float32.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from border_cli.nn.architecture import Architecture
from border_cli.settings.run import Matmul, MatmulPrecision

log = logging.getLogger(__name__)

# Multiplications from which oneDNN is used. On an AMD EPYC a call of it took 13 µs more than one of
# MKL, and 0.47 of the time per multiplication: both are equal at about this size.
WORTHWHILE = 2**20


class Layer(NamedTuple):
    """The memory of one dense layer."""

    weight: Tensor  # [outputs, inputs]; of E networks [E, inputs, outputs]
    bias: Tensor  # [outputs]; [E, 1, outputs]


Rows = TypeVar("Rows")  # [B, inputs] of one network, or a list of that, for several


class Products(Protocol[Rows]):
    """The products of a dense layer, without autograd."""

    def take(self, rows: Tensor, layers: Sequence[Layer]) -> bool:
        """Whether one of these layers is better passed with them than by torch's autograd."""

    def affine(self, rows: Rows, weight: Tensor, bias: Tensor) -> Rows:
        """[B, inputs], [outputs, inputs], [outputs] -> [B, outputs]"""

    def affine_relu(self, rows: Rows, weight: Tensor, bias: Tensor) -> Rows:
        """The same, and ReLU."""

    def grad_input(self, grad_output: Rows, weight: Tensor) -> Rows:
        """[B, outputs], [outputs, inputs] -> [B, inputs]"""

    def grad_weight(self, grad_output: Rows, rows: Rows) -> Tensor:
        """[B, outputs], [B, inputs] -> [outputs, inputs]"""

    def grad_bias(self, grad_output: Rows) -> Tensor:
        """[B, outputs] -> [outputs]"""

    def through_relu(self, grad_output: Rows, output: Rows) -> Rows:
        """0 where the ReLU was closed. [B, outputs], [B, outputs] -> [B, outputs]"""

    def split(self, whole: Tensor) -> Rows:
        """[B, size], or [E, B, size] of E networks, as these products take it."""

    def join(self, rows: Rows) -> Tensor:
        """The opposite."""


class TorchProducts:
    """Torch's own products, on any device."""

    def take(self, rows: Tensor, layers: Sequence[Layer]) -> bool:  # noqa: ARG002
        return False

    def affine(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, rows, weight.t())

    def affine_relu(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        # One call for product, bias and ReLU; autograd does not know it.
        result: Tensor = torch._addmm_activation(bias, rows, weight.t())
        return result

    def grad_input(self, grad_output: Tensor, weight: Tensor) -> Tensor:
        return grad_output.mm(weight)

    def grad_weight(self, grad_output: Tensor, rows: Tensor) -> Tensor:
        return grad_output.t().mm(rows)

    def grad_bias(self, grad_output: Tensor) -> Tensor:
        return grad_output.sum(0)

    def through_relu(self, grad_output: Tensor, output: Tensor) -> Tensor:
        result: Tensor = torch.ops.aten.threshold_backward(grad_output, output, 0)
        return result

    def operand(self, matrix: Tensor) -> Tensor:
        """What stands for these numbers in a product; of the same shape."""
        return matrix

    def split(self, whole: Tensor) -> Tensor:
        return whole

    def join(self, rows: Tensor) -> Tensor:
        return rows


TORCH = TorchProducts()


class OneDnnProducts(TorchProducts):
    """oneDNN's products of float32 matrices on a CPU; torch's where they are too small, and where
    another device, type or layout comes in."""

    def take(self, rows: Tensor, layers: Sequence[Layer]) -> bool:
        return any(_is_worthwhile(rows, weight) for weight, _ in layers)

    def affine(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if _fits(rows, weight):
            return self.product(self.operand(rows), self.operand(weight), bias)
        return super().affine(rows, weight, bias)

    def affine_relu(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if _fits(rows, weight):
            return self.product(self.operand(rows), self.operand(weight), bias, "relu")
        return super().affine_relu(rows, weight, bias)

    def grad_input(self, grad_output: Tensor, weight: Tensor) -> Tensor:
        if _fits(grad_output, weight.t()):
            return self.product(self.operand(grad_output), self.operand(weight).t())
        return super().grad_input(grad_output, weight)

    def grad_weight(self, grad_output: Tensor, rows: Tensor) -> Tensor:
        if _fits(grad_output.t(), rows.t()):
            return self.product_of_columns(self.operand(grad_output), self.operand(rows))
        return super().grad_weight(grad_output, rows)

    def product(
        self, rows: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        """[B, inputs], [outputs, inputs] -> [B, outputs]; either may be a transposed view."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, activation, [], "")
        return made

    def product_of_columns(self, left: Tensor, right: Tensor) -> Tensor:
        """[B, outputs], [B, inputs] -> [outputs, inputs]"""
        return self.product(left.t(), right.t())


class Bfloat16Products(OneDnnProducts):
    """The same with bfloat16 operands, summed in float32; the learner's thread calls it.

    A copy lives as long as its float32 tensor and is made anew once that has changed in place, so
    that a weight is converted once after each step of its optimizer or of its target, and an
    activation once for both passes.
    """

    def __init__(self) -> None:
        self._copies = WeakTensorKeyDictionary()  # (version of the tensor, its copy)

    def __deepcopy__(self, memo: object) -> Bfloat16Products:
        return self  # also of a network's target

    def operand(self, matrix: Tensor) -> Tensor:
        if matrix.dtype is torch.bfloat16:
            return matrix
        known: tuple[int, Tensor] | None
        known = self._copies.get(matrix)  # type: ignore[no-untyped-call]
        if known is None or known[0] != matrix._version:
            known = matrix._version, matrix.detach().bfloat16()
            self._copies[matrix] = known
        return known[1]

    def product(
        self, rows: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        return super().product(rows, weight, bias, activation).float()

    def product_of_columns(self, left: Tensor, right: Tensor) -> Tensor:
        # Of two transposed views; `_linear_pointwise` takes 1.5 times as long for these.
        return left.t().mm(right).float()  # oneDNN's as well


class EnsembleProducts:
    """The products of E networks of one form: lists of rows, weights [E, inputs, outputs] and
    biases [E, 1, outputs]. On AMD two of oneDNN take half the time of MKL's batched one."""

    def __init__(self, products: TorchProducts) -> None:
        self._products = products

    def take(self, rows: Tensor, layers: Sequence[Layer]) -> bool:
        return self._products.take(rows, layers)

    def affine(self, rows: list[Tensor], weight: Tensor, bias: Tensor) -> list[Tensor]:
        layers = zip(rows, self._weights(rows, weight), bias, strict=True)
        return [self._products.affine(each, by.t(), added[0]) for each, by, added in layers]

    def affine_relu(self, rows: list[Tensor], weight: Tensor, bias: Tensor) -> list[Tensor]:
        layers = zip(rows, self._weights(rows, weight), bias, strict=True)
        return [self._products.affine_relu(each, by.t(), added[0]) for each, by, added in layers]

    def grad_input(self, grad_output: list[Tensor], weight: Tensor) -> list[Tensor]:
        pairs = zip(grad_output, self._weights(grad_output, weight), strict=True)
        return [self._products.grad_input(each, by.t()) for each, by in pairs]

    def grad_weight(self, grad_output: list[Tensor], rows: list[Tensor]) -> Tensor:
        # As [inputs, outputs]: the roles are exchanged.
        pairs = zip(rows, grad_output, strict=True)
        return torch.stack([self._products.grad_weight(each, grad) for each, grad in pairs])

    def grad_bias(self, grad_output: list[Tensor]) -> Tensor:
        return torch.stack([each.sum(0, keepdim=True) for each in grad_output])

    def through_relu(self, grad_output: list[Tensor], output: list[Tensor]) -> list[Tensor]:
        pairs = zip(grad_output, output, strict=True)
        return [self._products.through_relu(*pair) for pair in pairs]

    def split(self, whole: Tensor) -> list[Tensor]:
        return list(whole.contiguous().unbind()) if whole.stride(1) == 0 else list(whole.unbind())

    def join(self, rows: list[Tensor]) -> Tensor:
        return torch.stack(rows)

    def _weights(self, rows: list[Tensor], weight: Tensor) -> Tensor:
        """A copy of the whole, and not of its parts, serves until the weights change."""
        is_used = self._products.take(rows[0], [Layer(weight, weight)])
        return self._products.operand(weight) if is_used else weight


def _is_worthwhile(rows: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN takes the product of [..., B, k] and [..., l, k] or [..., k, l]."""
    return (
        rows.shape[-2] * weight.shape[-2] * weight.shape[-1] >= WORTHWHILE
        and rows.dtype is torch.float32
        and rows.is_cpu
        and not torch.compiler.is_compiling()  # which has products of its own
    )


def _fits(rows: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN takes this product, and is worth it."""
    return (
        _is_worthwhile(rows, weight)
        and weight.dtype in (torch.float32, torch.bfloat16)
        and _is_matrix(rows)
        and _is_matrix(weight)
    )


def _is_matrix(operand: Tensor) -> bool:
    """Whether its rows, or its columns, lie one after the other in memory."""
    rows, columns = operand.shape
    return operand.stride() in ((columns, 1), (1, rows))


ONE_DNN = OneDnnProducts()
BFLOAT16 = Bfloat16Products()


class Processor(NamedTuple):
    """What the rule reads of a machine."""

    vendor: str  # as the kernel has it: GenuineIntel, AuthenticAMD; "" where it does not say
    capability: str  # of torch's own kernels: AVX512, AVX2, DEFAULT

    @property
    def name(self) -> str:
        """For the header: AMD, AVX512."""
        vendors = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
        return f"{vendors.get(self.vendor, self.vendor or 'other')}, {self.capability}"


def this_processor() -> Processor:
    """The processor of this machine."""
    return Processor(_vendor(), torch.backends.cpu.get_cpu_capability())


def _vendor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(found, "")


def has_onednn() -> bool:
    """Whether this build of torch has oneDNN's products."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def preferred(processor: Processor) -> Matmul:
    """The rule of `agent.matmul=auto`: oneDNN on AMD's processors with AVX-512, where MKL is slow.

    Nothing is timed, so that the same machine gives the same bits.
    """
    fits = processor.vendor == "AuthenticAMD" and processor.capability.startswith("AVX512")
    return Matmul.onednn if fits and has_onednn() else Matmul.mkl


@cache
def rule_here() -> Matmul:
    """What `auto` is on this machine."""
    return preferred(this_processor())


def chosen_matmul(setting: Matmul, saved: str | None = None) -> Matmul:
    """What a run computes with: as set, else as its checkpoint was made, else by the rule."""
    chosen = setting
    if chosen == Matmul.auto:
        chosen = Matmul(saved) if saved in list(Matmul) else rule_here()
    if chosen == Matmul.onednn and not has_onednn():
        log.warning("agent.matmul: torch %s has no oneDNN here; using mkl", torch.__version__)
        return Matmul.mkl
    return chosen


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16; on others oneDNN emulates it."""
    supported: bool = has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return supported
    # Versions of torch that cannot tell compute in float32.
    is_native = getattr(torch.cpu, "_is_avx512_bf16_supported", bool)
    return supported and is_native()


def rounds_convolutions(architecture: Architecture) -> bool:
    """The rule by which convolutions on a CPU have bfloat16 operands; nothing is timed.

    Whatever multiplies the matrices of dense layers, convolutions are always oneDNN's.
    """
    return architecture.matmul_precision == MatmulPrecision.medium and has_bfloat16()


def products_of(architecture: Architecture) -> TorchProducts:
    """The products that `agent.matmul` and `agent.matmul_precision` name.

    Torch's own have `medium` by themselves, and convert the operands at each call.
    """
    if chosen_matmul(architecture.matmul) != Matmul.onednn:
        return TORCH
    is_medium = architecture.matmul_precision == MatmulPrecision.medium
    return BFLOAT16 if is_medium and has_bfloat16() else ONE_DNN


def matmul_line(setting: Matmul, chosen: Matmul) -> str:
    """What a run computes with, and why, as text."""
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    title = "oneDNN" if chosen == Matmul.onednn else "MKL" if has_mkl else "torch's own"
    if setting != Matmul.auto:
        return f"{title} (agent.matmul={setting})"
    kept = "" if chosen == rule_here() else "; kept from the checkpoint"
    return f"{title} (agent.matmul=auto: {this_processor().name}{kept})"
