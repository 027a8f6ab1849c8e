"""Tensors with a size and no contents: an agent is counted before it takes memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

LARGE_NBYTES = 2**20  # a smaller tensor is filled, which takes no time

FACTORIES = frozenset({torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})
COPIES = frozenset({torch.zeros_like, torch.ones_like, torch.clone, Tensor.clone})
# Methods of a tensor and functions of torch.nn.init, which share these names.
FILLS = frozenset(
    {
        *("uniform_", "normal_", "zero_", "fill_", "copy_", "exponential_"),
        *("constant_", "kaiming_uniform_"),
    }
)


class Unfilled(TorchFunctionMode):
    """Within the block large tensors get addresses and no contents.

    Pages that nobody writes take neither memory nor time, so that an agent of any size can be
    built to be counted; what it computes means nothing. Torch raises where there are no addresses.
    No device `meta`, from which nothing can be copied or read; no TorchDispatchMode, though that
    would see every operation: the first of a process imports torch._dynamo, which takes a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in FACTORIES:
            made = _without_contents(func, args, named)
            return made if made.nbytes >= LARGE_NBYTES else func(*args, **named)
        copies = func in COPIES or (func is Tensor.to and named.get("copy"))
        if copies and args[0].nbytes >= LARGE_NBYTES:
            device = args[1] if func is Tensor.to else args[0].device
            return torch.empty_like(args[0], dtype=named.get("dtype"), device=device)
        if getattr(func, "__name__", "") in FILLS:
            # The functions of torch.nn.init hand their tensor over by its name.
            tensor = args[0] if args else named["tensor"]
            if tensor.nbytes >= LARGE_NBYTES:
                return tensor
        return func(*args, **named)


def _without_contents(
    func: Callable[..., Tensor], args: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    """A tensor like the one that a factory gives."""
    form = {name: each for name, each in named.items() if name not in ("device", "generator")}
    meta = func(*args, **form, device="meta")  # shape and type, without memory
    device = named.get("device") or torch.get_default_device()
    # Not `empty_like(meta)`, which imports sympy.
    made = torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype, device=device)
    return made.requires_grad_(meta.requires_grad)
