"""Tensors with a size and no contents: an agent is counted before it takes memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from border_cli.core.machine import Room, least_room
from border_cli.core.words import size

LARGE_NBYTES = 2**24  # a smaller tensor is filled, which takes no time
MOST_FILLED_NBYTES = 2**28  # of all tensors together; from there on none is filled

FACTORIES = frozenset(
    {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint}
)
PLACES = frozenset({"device", "generator", "pin_memory", "requires_grad"})  # no part of a form
COPIES = frozenset(
    {
        *(torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like),
        *(torch.rand_like, torch.randn_like, torch.clone, Tensor.clone, Tensor.__deepcopy__),
    }
)
# Methods of a tensor and functions of torch.nn.init, which share these names.
FILLS = frozenset(
    {
        *("uniform_", "normal_", "zero_", "fill_", "copy_", "zeros_", "ones_", "constant_"),
        *("trunc_normal_", "orthogonal_", "eye_", "random_", "exponential_"),
        *("kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"),
    }
)


class Unfilled(TorchFunctionMode):
    """Within the block large tensors on the CPU get addresses and no contents.

    Pages that nobody writes take neither memory nor time, so that an agent of any size can be
    built to be counted; what it computes means nothing. Raises MemoryError where all tensors
    together would take more than `room`. No TorchDispatchMode, though that would see every
    operation: the first of a process imports torch._dynamo, which takes a second.
    """

    def __init__(self, room: Callable[[], Room] = least_room) -> None:
        super().__init__()
        self._look = room
        self._held = 0  # bytes; more than there are where tensors were dropped since
        self._storages: list[tuple[StorageWeakRef, int]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in FACTORIES:
            return self._made(func, args, named)
        if func in COPIES or (func is Tensor.to and named.get("copy") and args[1] == "cpu"):
            return self._copied(func, args, named)
        if getattr(func, "__name__", "") in FILLS:
            # The functions of torch.nn.init hand their tensor over by its name.
            tensor = args[0] if args else named["tensor"]
            if self._leaves_empty(tensor.nbytes, tensor.device):
                return tensor
        return func(*args, **named)

    def _made(
        self, func: Callable[..., Tensor], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Tensor:
        """What a factory gives."""
        form = {key: each for key, each in named.items() if key not in PLACES}
        meta = func(*args, **form, device="meta")  # shape and type, without memory
        device = torch.device(named.get("device") or torch.get_default_device())
        self._reserve(meta.nbytes, device)
        if not self._leaves_empty(meta.nbytes, device):
            return self._noted(func(*args, **named))
        grad = bool(named.get("requires_grad"))
        return self._noted(torch.empty_like(meta, device=device, requires_grad=grad))

    def _copied(
        self, func: Callable[..., Tensor], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Tensor:
        """What a function gives that returns a tensor like its first argument."""
        like: Tensor = args[0] if args else named["input"]
        self._reserve(like.nbytes, like.device)
        if not self._leaves_empty(like.nbytes, like.device):
            return self._noted(func(*args, **named))
        copied = torch.empty_like(like, dtype=named.get("dtype"), requires_grad=False)
        if func is Tensor.__deepcopy__:
            copied.requires_grad_(like.requires_grad)
            args[1][id(like)] = copied  # the memo of copy.deepcopy
        return self._noted(copied)

    def _leaves_empty(self, nbytes: int, device: torch.device) -> bool:
        large = nbytes >= LARGE_NBYTES or self._held >= MOST_FILLED_NBYTES
        return large and device.type == "cpu"

    def _reserve(self, nbytes: int, device: torch.device) -> None:
        if device.type != "cpu" or self._held + nbytes < MOST_FILLED_NBYTES:
            return
        if self._held + nbytes > self._room.nbytes:
            self._storages = [each for each in self._storages if not each[0].expired()]  # type: ignore[no-untyped-call]
            self._held = sum(held for _, held in self._storages)
        if self._held + nbytes > self._room.nbytes:
            raise MemoryError(
                f"at least {size(self._held + nbytes)} are needed and "
                f"{size(self._room.nbytes)} are available ({self._room.limit})"
            )

    def _noted(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu":
            self._held += tensor.nbytes
            storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
            self._storages.append((storage, tensor.nbytes))
        return tensor

    @cached_property
    def _room(self) -> Room:
        return self._look()
