"""Matrix products of dense layers: by torch, which uses MKL on x86, or by oneDNN.

MKL takes a slow path on AMD processors. There, oneDNN takes 0.4 to 0.7 of the time if a product is
large enough; on Intel processors it takes longer (`python -m benchmarks.matmul`). Both compute in
full float32 and agree up to rounding. With `agent.matmul_precision=medium`, torch's products are as
fast and are always used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from border_cli.nn.architecture import Architecture
from border_cli.settings.networks import Matmul, MatmulPrecision

# Minimum number of multiplications for oneDNN. On an AMD EPYC, a call took 13 µs longer than with
# MKL, and each multiplication 0.47 of the time. At 2**20 (256 rows in layers of 64), oneDNN makes a
# run of PPO 1.13 times as long.
WORTHWHILE = 2**21


def suits_onednn(left: Tensor, right: Tensor) -> bool:
    """Returns whether oneDNN supports the product of these matrices and is faster."""
    return (
        left.shape[0] * right.shape[0] * right.shape[1] >= WORTHWHILE
        and left.dtype is torch.float32
        and left.is_cpu
        and not torch.compiler.is_compiling()  # compiled code has its own products
        and _is_matrix(left)
        and _is_matrix(right)
    )


def _is_matrix(operand: Tensor) -> bool:
    """Returns whether the matrix is contiguous, in row-major or column-major order."""
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
    """[B, inputs], [inputs, outputs], [outputs] -> [B, outputs]; `activation` is "relu" or "none".

    If `onednn` and the matrices suit it, oneDNN computes the product, otherwise torch.
    """
    result: Tensor
    if onednn and suits_onednn(left, right):
        result = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, activation, [], "")
    elif bias is None:
        result = left.mm(right)
    elif activation == "none":
        result = torch.addmm(bias, left, right)
    else:  # product, bias and ReLU in one call, without autograd
        result = torch._addmm_activation(bias, left, right)
    return result


@cache
def processor() -> tuple[str, str]:
    """Returns the vendor of the processor according to the kernel, or "" if unknown, and the
    capability used by torch's own kernels: AVX512, AVX2 or DEFAULT."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    vendors = (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id"))
    return next(vendors, ""), torch.backends.cpu.get_cpu_capability()


def has_onednn() -> bool:
    """Returns whether this build of torch has oneDNN's products."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def choose_matmul(setting: Matmul, precision: MatmulPrecision) -> Matmul:
    """Returns the matmul backend of a run on this machine.

    `auto` selects oneDNN on AMD processors with AVX-512, where MKL is slow. Nothing is timed, so
    results on one machine are the same to the bit.
    """
    if setting == Matmul.mkl or precision == MatmulPrecision.medium or not has_onednn():
        return Matmul.mkl
    vendor, capability = processor()
    fits = vendor == "AuthenticAMD" and capability.startswith("AVX512")
    return Matmul.onednn if fits or setting == Matmul.onednn else Matmul.mkl


def uses_onednn(architecture: Architecture) -> bool:
    """Returns whether oneDNN computes the matrix products of these networks."""
    chosen = choose_matmul(architecture.matmul, architecture.matmul_precision)
    return chosen == Matmul.onednn


def has_bfloat16() -> bool:
    """Returns whether this processor multiplies bfloat16; oneDNN emulates it on others."""
    supported: bool = has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    # Without this check, which older versions of torch lack, float32 is used.
    return supported and getattr(torch.cpu, "_is_avx512_bf16_supported", bool)()


def rounds_convolutions(architecture: Architecture) -> bool:
    """Returns whether convolutions on a CPU use bfloat16 operands.

    Convolutions always use oneDNN, whatever the matmul backend. Nothing is timed.
    """
    return architecture.matmul_precision == MatmulPrecision.medium and has_bfloat16()


def describe_matmul(setting: Matmul, precision: MatmulPrecision) -> str:
    """Describes the backend of a run and the reason for it."""
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    onednn = choose_matmul(setting, precision) == Matmul.onednn
    title = "oneDNN" if onednn else "MKL" if has_mkl else "torch's own"
    line = f"{title} (agent.matmul={setting}; {', '.join(processor())})"
    if precision == MatmulPrecision.medium and not has_bfloat16():
        line += "; agent.matmul_precision=medium gains nothing: the CPU has no bfloat16 units"
    return line
