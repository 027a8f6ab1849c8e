"""Where torch computes, what it keeps per thread, and what malloc does with freed memory.

Within `Agent.learner_thread` denormals are flushed and `agent.num_threads` and
`agent.matmul_precision` apply; from then on the process keeps freed memory, which glibc would
return to the kernel and request again, cleared, a thousand pages in every update of SAC. `medium`
was 1.3 times as fast at [256, 256] and batch 256 on a CPU with bfloat16 units, and slower at batch
64 or with smaller networks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from border_cli.errors import ConfigError

# Where glibc moves by itself once a block of 32 MiB was freed, and then keeps at most.
LARGEST_BLOCK_NBYTES = 32 * 2**20
KEPT_NBYTES = 2 * LARGEST_BLOCK_NBYTES

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_SETTINGS_OF_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def resolve_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else the CPU."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found += ["cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        found.append("mps")
    if name == "auto":
        return torch.device("cuda" if "cuda" in found else "cpu")
    if name not in found:
        raise ConfigError(
            f"device={name} is not there for torch {torch.__version__} (allowed: auto, "
            f"{', '.join(found)}); cuda needs a CUDA GPU and a CUDA build of torch"
        )
    return torch.device(name)


def refuse_other_dtype() -> None:
    """Raises ConfigError where torch's new tensors are not float32: weights would be no others."""
    dtype = torch.get_default_dtype()
    if dtype is not torch.float32:
        raise ConfigError(
            f"a module that was imported has called torch.set_default_dtype({dtype}), and agents "
            "learn in float32: remove that call, or let the module set its own tensors' dtype"
        )


@contextmanager
def learner_thread(num_threads: int, matmul_precision: str = "highest") -> Iterator[None]:
    """Within the block the calling thread is set up for many small updates; then as before.

    Denormals become 0, because they cost 13 % of a DQN update once Adam's averages decay through
    them. Torch's other threads inherit this where they start within the block, and keep it. The
    precision of products is torch's own for the whole process, one of highest, high and medium.
    Memory that was freed is kept for the next update, which holds for the rest of the process.
    """
    keep_freed_memory()
    # Looked up first: a thread's first look-up adopts what any thread, such as an actor, set last.
    threads, flushing = torch.get_num_threads(), _flushes_denormals()
    precision = torch.get_float32_matmul_precision()
    torch.set_flush_denormal(True)  # before there are other threads
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(matmul_precision)
    try:
        with torch.enable_grad():  # a user's module may have switched gradients off
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushing)


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """From now on this process keeps blocks of some 100 kB that it freed, and uses them again.

    By itself glibc hands them back to the kernel, which clears their pages when they are asked for
    again: of an update of SAC at [256, 256] and batch 256 that was an eighth of the time, and over
    a quarter where bfloat16 makes the products cheap. There is no getter, so nothing can undo it.
    False where there is no glibc, or where the environment says how malloc shall be.
    """
    if any(name in environ for name in _SETTINGS_OF_USERS):
        return False
    if "glibc.malloc" in environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # Either alone would make it worse: each switches off that glibc finds the other by itself.
    settings = (_MMAP_THRESHOLD, LARGEST_BLOCK_NBYTES), (_TRIM_THRESHOLD, KEPT_NBYTES)
    return all(mallopt(name, nbytes) for name, nbytes in settings)


def _flushes_denormals() -> bool:
    """Torch has no getter: the smallest normal number, halved, tells."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    return bool((smallest / 2).item() == 0)
