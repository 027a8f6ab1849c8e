"""A user's network: a torch.nn.Module, imported, built with the observation's space and tried.

It maps a batch of observations to features [B, F]. What does not fit is a ConfigError: a dry build
of the agent finds it before there is a run directory.
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
from border_cli.nn.tensor_batch import tensor_obs

ROWS = 2  # of the observation that it is tried on: of one, BatchNorm and `squeeze` show nothing


class UserTorso(Torso):
    """A user's network, which maps all of an observation to features."""

    def __init__(self, architecture: Architecture, generator: torch.Generator) -> None:
        assert architecture.target is not None
        called = f"agent.network={architecture.kind}: {architecture.target}"
        kind = _imported(architecture.target, called)
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        with torch.random.fork_rng(devices=[]):  # all that modules draw from
            torch.default_generator.manual_seed(seed)
            try:
                network: nn.Module = kind(architecture.observation, **architecture.kwargs)
            except MemoryError:
                raise  # which a dry build reports with what the whole run needs
            except Exception as error:
                raise ConfigError(f"{called} cannot be built: {place_of(error)}") from error
            features = _tried(network, architecture, called)
        _refuse_unused(network, features, called)
        super().__init__(features.shape[1])
        self.network = network

    def forward(self, features: FeatureTensors) -> Tensor:
        rows: Tensor = self.network(features)
        return rows


def _imported(target: str, called: str) -> Any:
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{called} cannot be imported: {error}") from error


def _tried(network: nn.Module, architecture: Architecture, called: str) -> Tensor:
    """Features that it makes of zeros, with a gradient. [ROWS, F]"""
    obs = tensor_obs(map_array(np.zeros_like, allocate(architecture.observation, ROWS)))
    network.eval()
    try:
        features: Any = network(obs)
    except Exception as error:
        raise ConfigError(f"{called} cannot take {_form(obs)}: {place_of(error)}") from error
    network.train()
    fits = isinstance(features, Tensor) and features.dtype == torch.float32
    if not fits or features.ndim != 2 or len(features) != ROWS or not features.shape[1]:
        found = _form(features) if isinstance(features, Tensor) else repr(type(features))
        raise ConfigError(
            f"{called} must give [{ROWS}, F] torch.float32 for {_form(obs)}, got {found}"
        )
    tried: Tensor = features
    return tried


def _refuse_unused(network: nn.Module, features: Tensor, called: str) -> None:
    """Raises ConfigError for parameters that have no gradient to learn from."""
    learned = {name: each for name, each in network.named_parameters() if each.requires_grad}
    if not learned:
        return
    leaves = list(learned.values())
    gradient: Sequence[Tensor | None] = [None] * len(leaves)
    if features.requires_grad:
        gradient = torch.autograd.grad(features.sum(), leaves, allow_unused=True)
    unused = [name for name, each in zip(learned, gradient, strict=True) if each is None]
    if unused:
        raise ConfigError(
            f"{called}: the features do not depend on its parameters {', '.join(unused)}: leave "
            "them out, or set their requires_grad to False"
        )


def _form(obs: TensorObs) -> str:
    """`[2, 4] torch.float32`, or that of each part."""
    if isinstance(obs, dict):
        return f"{{{', '.join(f'{key}: {_form(part)}' for key, part in obs.items())}}}"
    return f"{list(obs.shape)} {obs.dtype}"
