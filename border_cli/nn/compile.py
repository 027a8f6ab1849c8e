"""Compilation of updates with torch.compile.

Meant for GPUs: on a CPU the compiled update was no faster (0.87 to 1.04 times the rate). Updates
are compiled before the run starts, which takes 3 s, or about 20 s without a compilation cache.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from border_cli.errors import ConfigError, RunFailed

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

GRAPHS = "reduce-overhead"  # mode of torch.compile that uses CUDA graphs


def refuse_without_compiler(device: torch.device) -> None:
    """Raises ConfigError if torch cannot compile for the device."""
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise ConfigError(
                "agent.compile=true needs the triton package on a GPU (allowed: false)"
            )
        return
    # The compiler that torch uses.
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ConfigError(
            f"agent.compile=true needs a C++ compiler, but {compiler} was not found: install "
            "one, or set the environment variable CXX to yours (allowed: false)"
        )


def copy_tensors(result: R) -> R:
    """Copies tuples, lists and dicts with all their tensors; gradients flow through the copies."""
    parts: Any = result
    if isinstance(parts, torch.Tensor):
        return parts.clone()  # type: ignore[return-value]
    if isinstance(parts, dict):
        return {name: copy_tensors(part) for name, part in parts.items()}  # type: ignore[return-value]
    if not isinstance(parts, tuple | list):
        return result
    copies = [copy_tensors(part) for part in parts]
    kind: Any = type(parts)
    rebuilt: R = kind(*copies) if hasattr(parts, "_fields") else kind(copies)
    return rebuilt


class Compiled(Generic[P, R]):
    """A function without side effects, compiled at its first call; owned by the learner's thread.

    On a GPU the calls become CUDA graphs, each of which overwrites its previous results, so the
    caller gets copies that stay valid.
    """

    def __init__(self, function: Callable[P, R], device: torch.device) -> None:
        refuse_without_compiler(device)
        self._function = function
        self._mode = GRAPHS if device.type == "cuda" else "default"
        self._compiled: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result = (self._compiled or self._compile_and_call)(*args, **kwargs)
        return copy_tensors(result) if self._mode == GRAPHS else result

    def _compile_and_call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # imported late: torch imports its compiler when it first compiles
        from torch._inductor import config as inductor

        compiled = torch.compile(self._function, fullgraph=True, dynamic=False, mode=self._mode)
        log.info("agent.compile: compiling the update, which may take half a minute")
        began_s = time.perf_counter()
        try:
            # With more, torch starts threads and processes that outlive the run. Not reset
            # afterwards, because a backward pass is compiled later, when it is first needed.
            inductor.compile_threads = 1
            result = compiled(*args, **kwargs)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise RunFailed(
                f"agent.compile=true: torch {torch.__version__} could not compile the update "
                f"({type(error).__name__}: {reason})"
            ) from error
        log.info("agent.compile: compiled after %.1f s", time.perf_counter() - began_s)
        self._compiled = compiled
        return result
