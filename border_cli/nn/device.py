"""The device of an agent, and the settings of torch and malloc for the learner's thread.

Within `Agent.learner_thread`, denormals are flushed, and `agent.num_threads` and
`agent.matmul_precision` apply. The process then also keeps freed memory, which glibc would
otherwise return to the kernel and request again: a thousand cleared pages in every update of SAC.
`medium` was 1.3 times as fast at [256, 256] and batch 256 on a CPU with bfloat16 units, and slower
at batch 64 or with smaller networks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from border_cli.errors import ConfigError
from border_cli.system.processor import keep_freed_memory


def resolve_device(name: str) -> torch.device:
    """Returns the device with this name; `auto` is CUDA if it is available, else the CPU."""
    available = ["cpu"]
    if torch.cuda.is_available():
        available += ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        available.append("mps")
    if name == "auto":
        return torch.device("cuda" if "cuda" in available else "cpu")
    if name not in available:
        raise ConfigError(
            f"device={name} is not available in torch {torch.__version__} (allowed: auto, "
            f"{', '.join(available)}); cuda needs a CUDA GPU and a CUDA build of torch"
        )
    return torch.device(name)


def open_autograd_context(device: torch.device) -> None:
    """Creates the CUDA context of autograd's thread. Otherwise torch warns if the first backward
    pass starts with a matrix product."""
    if device.type == "cuda":
        leaf = torch.ones(1, device=device, requires_grad=True)
        torch.autograd.grad(2 * leaf, leaf)


def refuse_other_dtype() -> None:
    """Raises ConfigError if torch's default dtype, and hence that of weights, is not float32."""
    dtype = torch.get_default_dtype()
    if dtype is not torch.float32:
        raise ConfigError(
            f"an imported module has called torch.set_default_dtype({dtype}), but agents learn in "
            "float32: remove that call, or set the dtype of the module's own tensors instead"
        )


@contextmanager
def learner_thread(num_threads: int, matmul_precision: str = "highest") -> Iterator[None]:
    """Configures the calling thread for many small updates, and restores it at the end of the
    block.

    Denormals become 0, because they cost 13 % of a DQN update once Adam's averages decay through
    them. Torch threads that start within the block inherit this and keep it. The matmul precision
    (highest, high or medium) applies to the whole process, and so does `keep_freed_memory`, which
    cannot be undone.
    """
    keep_freed_memory()
    # Read first: the first read in a thread adopts the value set last by any thread, such as an
    # actor.
    threads, flushing = torch.get_num_threads(), _flushes_denormals()
    precision = torch.get_float32_matmul_precision()
    torch.set_flush_denormal(True)  # before other threads start
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(matmul_precision)
    try:
        with torch.enable_grad():  # a user's module may have disabled gradients
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushing)


def _flushes_denormals() -> bool:
    """Returns whether the smallest normal number becomes 0 when halved; torch has no getter."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    return bool((smallest / 2).item() == 0)
