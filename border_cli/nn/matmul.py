"""Matrix products of dense layers: torch's own, which are MKL's on x86, or oneDNN's.

MKL takes a slow path on AMD's processors. There oneDNN takes 0.4 to 0.7 of the time where a
product is large enough, and on Intel's it takes longer; `python -m benchmarks.matmul` measures it.
Both compute in full float32, and agree to rounding. With `agent.matmul_precision=medium` torch's
own are as fast, and always used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from border_cli.nn.architecture import Architecture
from border_cli.settings.networks import Matmul, MatmulPrecision

# Multiplications from which oneDNN is used. On an AMD EPYC a call of it took 13 µs more than one
# of MKL, and 0.47 of the time per multiplication. At 2**20 (256 rows in layers of 64) a run of PPO
# takes 1.13 of the time with it.
WORTHWHILE = 2**21


def suits_onednn(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN takes the product of these matrices, and is faster."""
    return (
        left.shape[0] * right.shape[0] * right.shape[1] >= WORTHWHILE
        and left.dtype is torch.float32
        and left.is_cpu
        and not torch.compiler.is_compiling()  # which has products of its own
        and _is_matrix(left)
        and _is_matrix(right)
    )


def _is_matrix(operand: Tensor) -> bool:
    """Whether its rows, or its columns, lie one after the other in memory."""
    rows, columns = operand.shape
    return operand.stride() in ((columns, 1), (1, rows))


def product(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    *,
    onednn: bool,
) -> Tensor:
    """[B, inputs], [inputs, outputs], [outputs] -> [B, outputs]; then "relu", or "none".

    With `onednn` by oneDNN where it suits, otherwise by torch.
    """
    result: Tensor
    if onednn and suits_onednn(left, right):
        result = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, activation, [], "")
    elif bias is None:
        result = left.mm(right)
    elif activation == "none":
        result = torch.addmm(bias, left, right)
    else:  # one call for product, bias and ReLU; autograd does not know it
        result = torch._addmm_activation(bias, left, right)
    return result


@cache
def processor() -> tuple[str, str]:
    """The vendor of this machine's processor as the kernel names it, "" if it does not, and the
    capability that torch's own kernels use: AVX512, AVX2, DEFAULT."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    vendors = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(vendors, ""), torch.backends.cpu.get_cpu_capability()


def has_onednn() -> bool:
    """Whether this build of torch has oneDNN's products."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def chosen_matmul(setting: Matmul, precision: MatmulPrecision) -> Matmul:
    """The backend of a run on this machine.

    `auto` is oneDNN on AMD's processors with AVX-512, where MKL is slow. Nothing is timed, so that
    the same machine gives the same bits.
    """
    if setting == Matmul.mkl or precision == MatmulPrecision.medium or not has_onednn():
        return Matmul.mkl
    vendor, capability = processor()
    fits = vendor == "AuthenticAMD" and capability.startswith("AVX512")
    return Matmul.onednn if fits or setting == Matmul.onednn else Matmul.mkl


def uses_onednn(architecture: Architecture) -> bool:
    """Whether oneDNN multiplies the matrices of these networks."""
    chosen = chosen_matmul(architecture.matmul, architecture.matmul_precision)
    return chosen == Matmul.onednn


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16; on others oneDNN emulates it."""
    supported: bool = has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    # Versions of torch that cannot tell compute in float32.
    return supported and getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()


def rounds_convolutions(architecture: Architecture) -> bool:
    """The rule by which convolutions on a CPU have bfloat16 operands; nothing is timed.

    Whatever multiplies the matrices of dense layers, convolutions are always oneDNN's.
    """
    return architecture.matmul_precision == MatmulPrecision.medium and has_bfloat16()


def matmul_line(setting: Matmul, precision: MatmulPrecision) -> str:
    """The backend of a run and the reason for it, as text."""
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    onednn = chosen_matmul(setting, precision) == Matmul.onednn
    title = "oneDNN" if onednn else "MKL" if has_mkl else "torch's own"
    line = f"{title} (agent.matmul={setting}; {', '.join(processor())})"
    if precision == MatmulPrecision.medium and not has_bfloat16():
        line += "; agent.matmul_precision=medium gains nothing: the CPU has no bfloat16 units"
    return line
