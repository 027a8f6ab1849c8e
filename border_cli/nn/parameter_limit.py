"""A limit on the memory of an agent under construction, based on its number of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from border_cli.words import size

# Nine float32: weight, gradient, Adam's two averages and a spare array, target and its step,
# snapshot, and the actors' copy. A checkpoint needs more: DQN with two layers of 5,000 units took
# 114 bytes per parameter at its peak.
PARAMETER_NBYTES = 36


class _Limit:
    """The number of parameters so far, and the block in which they are limited."""

    def __init__(self, nbytes: int, stack: ExitStack) -> None:
        self.nbytes, self.stack, self.count = nbytes, stack, 0


_active: list[_Limit] = []  # at most one


@contextmanager
def parameters_within(nbytes: int) -> Iterator[None]:
    """Raises MemoryError if parameters created in the block need more than `nbytes` of memory.

    They are counted before they are allocated or written to, so no memory has been used yet.
    """
    with ExitStack() as stack:
        _active.append(_Limit(nbytes, stack))
        stack.callback(_active.pop)
        yield


def count_parameters(count: int) -> None:
    """Counts parameters that will be allocated, if there is a limit."""
    for limit in _active:
        limit.count += count
        if limit.count * PARAMETER_NBYTES > limit.nbytes:
            raise MemoryError(
                f"an agent of at least {limit.count:,} parameters needs "
                f"{size(limit.count * PARAMETER_NBYTES)} of memory, but {size(limit.nbytes)} is "
                "available"
            )


def count_modules() -> None:
    """Counts the parameters of torch's modules from now on, if there is a limit."""
    # imported late: numpy agents run without torch
    from torch.nn.modules.module import register_module_parameter_registration_hook
    from torch.nn.parameter import Parameter, is_lazy

    def count(module: object, name: str, parameter: Parameter | None) -> None:  # noqa: ARG001
        if parameter is not None and not is_lazy(parameter):
            count_parameters(parameter.numel())

    for limit in _active:
        limit.stack.callback(register_module_parameter_registration_hook(count).remove)
