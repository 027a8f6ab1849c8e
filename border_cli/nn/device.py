"""Where torch computes, and what it keeps per thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from border_cli.core.errors import ConfigError
from border_cli.core.malloc import keep_freed_memory
from border_cli.core.words import counted


def resolve_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device must be auto, cpu or cuda, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu or cuda, got {name!r}")
    if device.type == "cuda":
        _refuse_missing_gpu(device)
    return device


def _refuse_missing_gpu(device: torch.device) -> None:
    if not torch.cuda.is_available():
        raise ConfigError(
            f"device={device} needs a CUDA GPU and a CUDA build of torch; torch "
            f"{torch.__version__} finds no GPU (allowed: auto, cpu)"
        )
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise ConfigError(
            f"device={device} does not exist: torch finds {counted(count, 'CUDA device')}"
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
    threads, flushing = torch.get_num_threads(), _flushes_denormals()
    precision = torch.get_float32_matmul_precision()
    torch.set_flush_denormal(True)  # before there are other threads
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(matmul_precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushing)


def _flushes_denormals() -> bool:
    """Torch has no getter: the smallest normal number, halved, tells."""
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    return bool((smallest / 2).item() == 0)
