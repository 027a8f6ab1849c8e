"""A user's network: a torch.nn.Module, imported, built with the observation's space and tried.

It maps a batch of observations to features [B, F]. What does not fit is a ConfigError: a dry build
of the agent finds it before there is a run directory.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from border_cli.core.errors import ConfigError
from border_cli.core.spaces import allocate
from border_cli.core.types import map_array
from border_cli.core.words import did_you_mean
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import TensorObs
from border_cli.nn.tensor_batch import tensor_obs

ROWS = 2  # of the observation that it is tried on: of one, BatchNorm and `squeeze` show nothing


def build_user_network(
    architecture: Architecture, generator: torch.Generator
) -> tuple[nn.Module, int]:
    """The network with weights of the generator's, and how many features it gives."""
    assert architecture.target is not None
    setting = f"agent.network={architecture.kind}"
    kind = _imported(architecture.target, setting)
    with _seeded(int(torch.randint(2**63 - 1, (), generator=generator))):
        network = _constructed(kind, architecture, setting)
        features = _tried(network, kind, architecture, setting)
    _refuse_unfit(network, features, kind, setting)
    return network, features.shape[1]


def _imported(target: str, setting: str) -> type[nn.Module]:
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it is there, and a module that it needs is not
        raise ConfigError(
            f"{setting}: no module named {error.name!r}; {module_name} must be on the Python path"
        ) from error
    kind = getattr(module, name, None)
    if kind is None:
        raise ConfigError(
            f"{setting}: {module_name} has no {name}{did_you_mean(name, vars(module))}"
        )
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ConfigError(f"{setting}: {target} must be a torch.nn.Module, got {kind!r}")
    return kind


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within the block torch's global generator has this seed, which is all that modules know."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _constructed(kind: type[nn.Module], architecture: Architecture, setting: str) -> nn.Module:
    kwargs = dict(architecture.kwargs)
    try:
        inspect.signature(kind).bind(architecture.observation, **kwargs)
    except TypeError as error:
        raise _refused_kwargs(kind, kwargs, error) from error
    try:
        return kind(architecture.observation, **kwargs)
    except MemoryError:
        raise  # which a dry build reports with what the whole run needs
    except Exception as error:
        raise ConfigError(
            f"{setting}: {_called(kind)} cannot be built: {_raised(error)}"
        ) from error


def _refused_kwargs(kind: type[nn.Module], kwargs: dict[str, Any], error: TypeError) -> ConfigError:
    parameters = list(inspect.signature(kind).parameters.values())
    if not parameters:
        return ConfigError(f"{_called(kind)} must take the observation space first: {error}")
    starred = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    plain = (each for each in parameters[1:] if each.kind not in starred)
    accepted = ", ".join(each.name for each in plain) or "none"
    return ConfigError(
        f"agent.network_kwargs {kwargs} is not accepted by {_called(kind)}: {error} (accepted: "
        f"{accepted})"
    )


def _tried(
    network: nn.Module, kind: type[nn.Module], architecture: Architecture, setting: str
) -> Tensor:
    """What it makes of zeros, with a gradient. [ROWS, F]"""
    obs = tensor_obs(map_array(np.zeros_like, allocate(architecture.observation, ROWS)))
    network.eval()
    try:
        features: Any = network(obs)
    except Exception as error:
        raise ConfigError(
            f"{setting}: {_called(kind)} cannot take {_form(obs)}: {_raised(error)}"
        ) from error
    network.train()
    if any(each._version for each in (obs.values() if isinstance(obs, dict) else [obs])):
        raise ConfigError(f"{setting}: {_called(kind)} must not change observations in place")
    fits = isinstance(features, Tensor) and features.dtype == torch.float32
    if not fits or features.ndim != 2 or len(features) != ROWS or not features.shape[1]:
        found = _form(features) if isinstance(features, Tensor) else repr(type(features))
        raise ConfigError(
            f"{setting}: {_called(kind)} must give [{ROWS}, F] torch.float32 for {_form(obs)}, "
            f"got {found}"
        )
    tried: Tensor = features
    return tried


def _refuse_unfit(
    network: nn.Module, features: Tensor, kind: type[nn.Module], setting: str
) -> None:
    """What learning, targets and actors need of it."""
    learned = {name: each for name, each in network.named_parameters() if each.requires_grad}
    if learned:
        leaves = list(learned.values())
        gradient: Sequence[Tensor | None] = [None] * len(leaves)
        if features.requires_grad:
            gradient = torch.autograd.grad(features.sum(), leaves, allow_unused=True)
        unused = [name for name, each in zip(learned, gradient, strict=True) if each is None]
        if unused:
            raise ConfigError(
                f"{setting}: the features of {_called(kind)} do not depend on its parameters "
                f"{', '.join(unused)}: leave them out, or set their requires_grad to False"
            )
    try:
        copy.deepcopy(network)
        for each in network.state_dict().values():
            torch.empty(0, dtype=each.dtype).numpy()
    except Exception as error:
        raise ConfigError(
            f"{setting}: {_called(kind)} must be copyable, for targets and actors: {_raised(error)}"
        ) from error


def _called(kind: type[nn.Module]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _form(obs: TensorObs) -> str:
    """`[2, 4] torch.float32`, or that of each part."""
    if isinstance(obs, dict):
        return f"{{{', '.join(f'{key}: {_form(part)}' for key, part in obs.items())}}}"
    return f"{list(obs.shape)} {obs.dtype}"


def _raised(error: Exception) -> str:
    """The error, and the last place of it that is not torch's or ours."""
    ours = (torch.__path__[0], str(Path(__file__).parents[1]))
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not each.filename.startswith(ours)
    ]
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return f"{place}{type(error).__name__}: {' '.join(str(error).split())}"
