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
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from border_cli.nn.architecture import Architecture
from border_cli.settings.networks import Matmul, MatmulPrecision

log = logging.getLogger(__name__)

# Multiplications from which oneDNN is used. On an AMD EPYC a call of it took 13 µs more than one of
# MKL, and 0.47 of the time per multiplication: both are equal at about this size.
WORTHWHILE = 2**20


class Products:
    """Torch's own products of matrices, on any device."""

    def suit(self, left: Tensor, right: Tensor) -> bool:  # noqa: ARG002
        """Whether they compute a product of so many rows faster than torch's autograd does."""
        return False

    def product(
        self, left: Tensor, right: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        """[B, inputs], [inputs, outputs], [outputs] -> [B, outputs]; then "relu", or "none"."""
        if bias is None:
            return left.mm(right)
        if activation == "none":
            return torch.addmm(bias, left, right)
        # One call for product, bias and ReLU; autograd does not know it.
        result: Tensor = torch._addmm_activation(bias, left, right)
        return result


MKL = Products()


class OneDnnProducts(Products):
    """oneDNN's products of float32 matrices on a CPU; torch's where they are too small, and where
    another device, type or layout comes in."""

    def suit(self, left: Tensor, right: Tensor) -> bool:
        return (
            left.shape[0] * right.shape[0] * right.shape[1] >= WORTHWHILE
            and left.dtype is torch.float32
            and left.is_cpu
            and not torch.compiler.is_compiling()  # which has products of its own
            and _is_matrix(left)
            and _is_matrix(right)
        )

    def product(
        self, left: Tensor, right: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        if not self.suit(left, right):
            return super().product(left, right, bias, activation)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            left, right.t(), bias, activation, [], ""
        )
        return result


class Bfloat16Products(OneDnnProducts):
    """oneDNN's products of bfloat16 operands, summed in float32; the learner's thread calls it.

    A copy lives as long as its float32 tensor and is made anew once that has changed in place, so
    that a weight is converted once after each step of its optimizer or of its target, and an
    activation once for both passes.
    """

    def __init__(self) -> None:
        self._copies = WeakTensorKeyDictionary()  # (version of the tensor, its copy)

    def __deepcopy__(self, memo: object) -> Bfloat16Products:
        return self  # also of a network's target

    def product(
        self, left: Tensor, right: Tensor, bias: Tensor | None = None, activation: str = "none"
    ) -> Tensor:
        if not self.suit(left, right):
            return super().product(left, right, bias, activation)
        left, right = self._copy(left), self._copy(right)
        if bias is None:
            return left.mm(right).float()  # oneDNN's as well
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            left, right.t(), bias, activation, [], ""
        )
        return result.float()

    def _copy(self, matrix: Tensor) -> Tensor:
        """The matrix in bfloat16: a view of a copy of the whole tensor that it is a view of."""
        base = matrix._base
        whole = base if base is not None and base.is_contiguous() else matrix
        known: tuple[int, Tensor] | None
        known = self._copies.get(whole)  # type: ignore[no-untyped-call]
        if known is None or known[0] != whole._version:
            known = whole._version, whole.detach().bfloat16()
            self._copies[whole] = known
        offset = matrix.storage_offset() - whole.storage_offset()
        return known[1].as_strided(matrix.shape, matrix.stride(), offset)


def _is_matrix(operand: Tensor) -> bool:
    """Whether its rows, or its columns, lie one after the other in memory."""
    rows, columns = operand.shape
    return operand.stride() in ((columns, 1), (1, rows))


ONE_DNN = OneDnnProducts()
BFLOAT16 = Bfloat16Products()


class Processor(NamedTuple):
    """A processor, as far as the rule reads it."""

    vendor: str  # as the kernel has it: GenuineIntel, AuthenticAMD; "" where it does not say
    capability: str  # of torch's own kernels: AVX512, AVX2, DEFAULT

    @property
    def name(self) -> str:
        """For the header: AMD, AVX512."""
        vendors = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
        return f"{vendors.get(self.vendor, self.vendor or 'other')}, {self.capability}"


def this_processor() -> Processor:
    """The processor of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    vendors = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return Processor(next(vendors, ""), torch.backends.cpu.get_cpu_capability())


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
def chosen_matmul(setting: Matmul) -> Matmul:
    """The products of a run on this machine: as set, else by the rule."""
    chosen = preferred(this_processor()) if setting == Matmul.auto else setting
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


def products_of(architecture: Architecture) -> Products:
    """The products that `agent.matmul` and `agent.matmul_precision` name.

    Torch's own have `medium` by themselves, and convert the operands at each call.
    """
    if chosen_matmul(architecture.matmul) != Matmul.onednn:
        return MKL
    is_medium = architecture.matmul_precision == MatmulPrecision.medium
    return BFLOAT16 if is_medium and has_bfloat16() else ONE_DNN


def matmul_line(
    setting: Matmul, chosen: Matmul, precision: MatmulPrecision = MatmulPrecision.highest
) -> str:
    """The products of a run and the reason for them, as text."""
    vain = ""
    if precision == MatmulPrecision.medium and not has_bfloat16():
        vain = "; agent.matmul_precision=medium gains nothing: the CPU has no bfloat16 units"
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    title = "oneDNN" if chosen == Matmul.onednn else "MKL" if has_mkl else "torch's own"
    if setting != Matmul.auto:
        return f"{title} (agent.matmul={setting}){vain}"
    return f"{title} (agent.matmul=auto: {this_processor().name}){vain}"
