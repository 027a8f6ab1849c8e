"""Users' networks, which are imported, built for the observation space, and tested.

A network is a torch.nn.Module that maps a batch of observations to features [B, F]. All errors are
ConfigErrors, found by a dry build of the agent before a run directory is created.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.core.spaces import allocate
from border_cli.core.types import map_array
from border_cli.errors import ConfigError, place_of
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import FeatureTensors, TensorObs, Torso
from border_cli.nn.tensors import tensor_obs

ROWS = 2, 1  # sizes of the test batches: `squeeze` removes the first axis of a single row only


class UserTorso(Torso):
    """A user's network, which maps whole observations to features."""

    def __init__(self, architecture: Architecture, rng: np.random.Generator) -> None:
        assert architecture.target is not None
        called = f"agent.network={architecture.kind}: {architecture.target}"
        kind = _import_class(architecture.target, called)
        seed = int(rng.integers(2**63 - 1))
        with torch.random.fork_rng(devices=[]):  # modules use this generator
            torch.default_generator.manual_seed(seed)
            try:
                network: nn.Module = kind(architecture.observation, **architecture.kwargs)
            except MemoryError:
                raise  # the dry build reports it for the whole run
            except Exception as error:
                raise ConfigError(f"{called} cannot be built: {place_of(error)}") from error
            for rows in ROWS:
                features = _test_network(network, architecture, rows, called)
            _refuse_unused(network, features, called)
            with torch.no_grad():  # weights that a hook computes have no graph then: deepcopy
                _test_network(network, architecture, rows, called)
        super().__init__(features.shape[1])
        self.network = network

    def forward(self, features: FeatureTensors) -> Tensor:
        rows: Tensor = self.network(features)
        return rows


def _import_class(target: str, called: str) -> Any:
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{called} cannot be imported: {error}") from error


def _test_network(network: nn.Module, architecture: Architecture, rows: int, called: str) -> Tensor:
    """Returns the features of an observation of zeros, with a gradient. [rows, F]"""
    obs = tensor_obs(map_array(np.zeros_like, allocate(architecture.observation, rows)))
    network.eval()
    try:
        features: Any = network(obs)
    except Exception as error:
        raise ConfigError(f"{called} fails for {_describe(obs)}: {place_of(error)}") from error
    network.train()
    if any(part._version for part in (obs.values() if isinstance(obs, dict) else [obs])):
        raise ConfigError(f"{called} changes its input in place, which is also stored")
    fits = isinstance(features, Tensor) and features.dtype == torch.float32
    if not fits or features.ndim != 2 or len(features) != rows or not features.shape[1]:
        actual = _describe(features) if isinstance(features, Tensor) else repr(type(features))
        raise ConfigError(
            f"{called} must return [{rows}, F] torch.float32 for {_describe(obs)}, got {actual}"
        )
    tensor: Tensor = features
    return tensor


def _refuse_unused(network: nn.Module, features: Tensor, called: str) -> None:
    """Raises ConfigError if trainable parameters have no gradient."""
    learned = {name: leaf for name, leaf in network.named_parameters() if leaf.requires_grad}
    if not learned:
        return
    leaves = list(learned.values())
    gradient: Sequence[Tensor | None] = [None] * len(leaves)
    if features.requires_grad:
        gradient = torch.autograd.grad(features.sum(), leaves, allow_unused=True)
    unused = [name for name, part in zip(learned, gradient, strict=True) if part is None]
    if unused:
        raise ConfigError(
            f"{called}: the features do not depend on its parameters {', '.join(unused)}: leave "
            "them out, or set their requires_grad to False"
        )


def _describe(obs: TensorObs) -> str:
    """Describes shape and dtype, as in `[2, 4] torch.float32`, for each part of a dict."""
    if isinstance(obs, dict):
        return f"{{{', '.join(f'{key}: {_describe(part)}' for key, part in obs.items())}}}"
    return f"{list(obs.shape)} {obs.dtype}"
