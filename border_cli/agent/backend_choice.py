"""The choice between numpy and torch for the networks of an agent."""

from __future__ import annotations

import ctypes
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from border_cli.agent.learner_config import LearnerConfig
from border_cli.nn.adam_form import adam_form
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import Backend
from border_cli.settings.networks import Activation, BackendName

ACTIVATIONS = (Activation.relu, Activation.tanh)
# Settings of which numpy supports one value only.
USUAL = {
    **{"noisy": False, "compile": False, "augment": "none"},
    **{"matmul": "auto", "matmul_precision": "highest"},
}

# With this many weights before the output layer, torch is about as fast on a CPU
# (`benchmarks.backends`): its optimizer passes over them once, numpy's twelve times.
LARGE = 2**19


def make_backend(
    config: LearnerConfig,
    architecture: Architecture,
    *,
    device: str,
    generator: np.random.Generator,
    noise_seed: int,
) -> Backend:
    """Builds the backend of `agent.backend`. Raises ConfigError if numpy cannot run the agent."""
    obstacle = why_not_numpy(config, architecture, device)
    if config.backend == BackendName.numpy and obstacle is not None:
        config.refuse("backend", "numpy", f"must be torch: {obstacle}")
    if config.backend == BackendName.auto and obstacle is None:
        obstacle = why_torch_is_faster(architecture)
    if config.backend == BackendName.torch or obstacle is not None:
        from border_cli.agent.torch_backend import TorchBackend  # imported late: torch takes 1 s

        return TorchBackend(
            config,
            architecture,
            device=device,
            generator=generator,
            noise_seed=noise_seed,
            reason=f"agent.backend={config.backend}: {obstacle or 'as requested'}",
        )
    from border_cli.agent.numpy_backend import NumpyBackend

    reason = f"agent.backend={config.backend}: a dense network on a CPU"
    return NumpyBackend(config, architecture, generator=generator, reason=reason)


def why_not_numpy(config: LearnerConfig, architecture: Architecture, device: str) -> str | None:
    """Returns the first reason why numpy cannot run the networks, or None."""
    kwargs = f" with {config.optimizer_kwargs}" if config.optimizer_kwargs else ""
    declared = vars(type(config)).get("numpy_networks", False)
    obstacles = {
        f"agent={config.option or 'this agent'} has networks in torch only": not declared,
        f"agent.network={architecture.kind} is more than dense layers": architecture.has_encoder,
        f"agent.activation={architecture.activation} is not in numpy": (
            architecture.activation not in ACTIVATIONS
        ),
        f"agent.optimizer={config.optimizer}{kwargs} is not in numpy": (
            adam_form(config.optimizer, config.optimizer_kwargs) is None
        ),
        f"agent.num_threads={config.num_threads}": (config.num_threads or 1) > 1,
        f"device={device}": device not in ("auto", "cpu"),
    }
    for name, usual in USUAL.items():
        value = getattr(config, name, usual)
        obstacles[f"agent.{name}={str(value).lower()}"] = value != usual
    reasons = [reason for reason, applies in obstacles.items() if applies]
    if reasons:
        return reasons[0]
    return "device=auto found a GPU" if device == "auto" and has_cuda() else None


def why_torch_is_faster(architecture: Architecture) -> str | None:
    """Returns a reason if torch is at least as fast for networks of this size, or None."""
    sizes = [architecture.row_size, *architecture.hidden]
    weights = sum(inputs * outputs for inputs, outputs in pairwise(sizes))
    return f"a network of {weights:,} weights is large" if weights >= LARGE else None


def has_cuda() -> bool:
    """Returns whether torch can use a GPU. Imports torch only if there is a driver."""
    if not Path("/dev/kfd").exists():  # of AMD's driver
        try:
            ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        except OSError:
            return False
    import torch  # imported late: see above

    return torch.cuda.is_available()
