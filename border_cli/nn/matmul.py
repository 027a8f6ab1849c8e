"""Products of dense layers: torch's own, which are MKL's on x86, or oneDNN's.

MKL takes a slow path on AMD's processors. There oneDNN takes 0.4 to 0.7 of the time where a
product is large enough, and on Intel's it takes longer; `python -m benchmarks.matmul` measures it.
Both compute in full float32, and agree to rounding. With `agent.matmul_precision=medium`, oneDNN's
operands are bfloat16 copies, made once for all products of a weight or an activation; what a
product gives, the weights themselves and all that is summed over rows or updates stay float32.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakTensorKeyDictionary

from border_cli.core.config import Matmul, MatmulPrecision
from border_cli.nn.architecture import Architecture

log = logging.getLogger(__name__)

# Multiplications from which oneDNN is used. On an AMD EPYC a call of it took 13 µs more than one of
# MKL, and 0.47 of the time per multiplication: both are equal at about this size.
WORTHWHILE = 2**20


class Products(Protocol):
    """The products of a dense layer. Without autograd, but for `linear` and `ensemble`."""

    def affine(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[B, inputs], [outputs, inputs], [outputs] -> [B, outputs]"""

    def affine_relu(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The same, and ReLU."""

    def grad_input(self, grad_output: Tensor, weight: Tensor) -> Tensor:
        """[B, outputs], [outputs, inputs] -> [B, inputs]"""

    def grad_weight(self, grad_output: Tensor, rows: Tensor) -> Tensor:
        """[B, outputs], [B, inputs] -> [outputs, inputs]"""

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """[..., inputs], [outputs, inputs], [outputs] -> [..., outputs], with autograd."""

    def ensemble(self, rows: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        """[E, B, inputs], [E, inputs, outputs], [E, 1, outputs] -> [E, B, outputs], with
        autograd."""


class TorchProducts:
    """Torch's own products, on any device."""

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

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(rows, weight, bias)

    def ensemble(self, rows: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        # Added in place: torch.baddbmm copies the bias to every row first, 5 % of its time.
        return torch.bmm(rows, weights).add_(biases)


TORCH = TorchProducts()


class OneDnnProducts:
    """oneDNN's products of float32 matrices on a CPU; torch's where they are too small, and where
    another device, type or layout comes in."""

    def affine(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if _fits(rows, weight):
            return self.product(self.operand(rows), self.operand(weight), bias)
        return TORCH.affine(rows, weight, bias)

    def affine_relu(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if _fits(rows, weight):
            return self.product(self.operand(rows), self.operand(weight), bias, "relu")
        return TORCH.affine_relu(rows, weight, bias)

    def grad_input(self, grad_output: Tensor, weight: Tensor) -> Tensor:
        if _fits(grad_output, weight.t()):
            return self.product(self.operand(grad_output), self.operand(weight).t())
        return TORCH.grad_input(grad_output, weight)

    def grad_weight(self, grad_output: Tensor, rows: Tensor) -> Tensor:
        if _fits(grad_output.t(), rows.t()):
            return self.product(self.operand(grad_output).t(), self.operand(rows).t())
        return TORCH.grad_weight(grad_output, rows)

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        flat = rows if rows.dim() == 2 else rows.flatten(0, -2)
        if not _fits(flat, weight):
            return TORCH.linear(rows, weight, bias)
        result: Tensor = _Linear.apply(flat, weight, bias, self)  # type: ignore[no-untyped-call]
        return result.view(*rows.shape[:-1], len(weight))

    def ensemble(self, rows: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
        if not _fits(rows[0], weights[0].t()):
            return TORCH.ensemble(rows, weights, biases)
        result: Tensor = _Ensemble.apply(rows, weights, biases, self)  # type: ignore[no-untyped-call]
        return result

    def operand(self, matrix: Tensor) -> Tensor:
        """What stands for these numbers in a product; of the same shape."""
        return matrix

    def product(
        self, rows: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        """[B, inputs], [outputs, inputs] -> [B, outputs]; either may be a transposed view."""
        made: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, activation, [], "")
        return made


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


def _fits(rows: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN takes this product, and is worth it."""
    return (
        not torch.compiler.is_compiling()  # which has products of its own
        and rows.shape[0] * weight.numel() >= WORTHWHILE
        and rows.dtype is weight.dtype is torch.float32
        and rows.is_cpu
        and _is_matrix(rows)
        and _is_matrix(weight)
    )


def _is_matrix(operand: Tensor) -> bool:
    """Whether its rows, or its columns, lie one after the other in memory."""
    return operand.is_contiguous() or operand.t().is_contiguous()


class _Linear(torch.autograd.Function):
    """`affine` with gradients by all three, each computed where it is asked for."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, products: OneDnnProducts
    ) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.products = products
        return products.affine(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        by_rows, by_weight, by_bias, _ = ctx.needs_input_grad
        return (
            ctx.products.grad_input(grad_output, weight) if by_rows else None,
            ctx.products.grad_weight(grad_output, rows) if by_weight else None,
            grad_output.sum(0) if by_bias else None,
            None,
        )


class _Ensemble(torch.autograd.Function):
    """A product for each member: two of these take half the time of MKL's batched one."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weights: Tensor, biases: Tensor, products: OneDnnProducts
    ) -> Tensor:
        ctx.save_for_backward(rows, weights)
        ctx.products = products
        members = zip(products.operand(rows), products.operand(weights), biases, strict=True)
        made = [products.product(each, by.t(), bias[0]) for each, by, bias in members]
        return torch.stack(made)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        products: OneDnnProducts = ctx.products
        rows, weights = (products.operand(each) for each in ctx.saved_tensors)
        by_rows, by_weights, by_biases, _ = ctx.needs_input_grad
        grads = products.operand(grad_output.contiguous())  # that of a sum has no memory of its own
        by_each_row = by_each_weight = None
        if by_rows:
            pairs = zip(grads, weights, strict=True)
            by_each_row = torch.stack([products.product(grad, by) for grad, by in pairs])
        if by_weights:
            pairs = zip(grads, rows, strict=True)
            by_each_weight = torch.stack(
                [products.product(each.t(), grad.t()) for grad, each in pairs]
            )
        by_each_bias = grad_output.sum(1, keepdim=True) if by_biases else None
        return by_each_row, by_each_weight, by_each_bias, None


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
    """Whether oneDNN computes with bfloat16 on this processor."""
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return has_onednn() and supported


def products_of(architecture: Architecture) -> Products:
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
