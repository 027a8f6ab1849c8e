"""A limit on the memory of an agent under construction, based on its number of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy

from border_cli.words import size

# Seven float32: weight, gradient, Adam's two averages, target, snapshot, and the actors' copy. A
# checkpoint needs more: DQN with two layers of 5,000 units took 114 bytes at its peak.
PARAMETER_NBYTES = 28


@contextmanager
def parameters_within(nbytes: int) -> Iterator[None]:
    """Raises MemoryError if parameters created in the block need more than `nbytes` of memory.

    A module registers an empty parameter before it writes to it, so no memory has been used yet.
    """
    count = 0

    def add(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:  # noqa: ARG001
        nonlocal count
        if parameter is not None and not is_lazy(parameter):
            count += parameter.numel()
        if count * PARAMETER_NBYTES > nbytes:
            raise MemoryError(
                f"an agent of at least {count:,} parameters needs "
                f"{size(count * PARAMETER_NBYTES)} of memory, but {size(nbytes)} is available"
            )

    hook = register_module_parameter_registration_hook(add)
    try:
        yield
    finally:
        hook.remove()
