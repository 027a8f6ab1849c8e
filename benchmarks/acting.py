"""Time per call of the actors' networks: numpy against the learner's torch modules.

    python -m benchmarks.acting [--repetitions 10]

Measures microseconds per call on one thread, for 1 and 8 observations; the two contenders take
turns. Dense networks are [256, 256] with 4 inputs. A numpy network is worth keeping as long as
torch takes more than 1.1 times as long for one observation (`to_torch` below 0.91).
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.table import Reading, column, emit, make_parser, ratios, summary, take_turns
from border_cli.core.spaces import BoxSpace
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features
from border_cli.nn.network import Network
from border_cli.nn.numpy_network import (
    ActingNetwork,
    NumpyNetwork,
    NumpyQuantileNetwork,
    NumpyValueNetwork,
)
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.tensors import tensor_obs, to_arrays
from border_cli.nn.value_network import ValueNetwork

ROWS = (1, 8)
ACTIONS = 2
ROUND_S = 0.2


def space(*shape: int, dtype: str = "float32", high: int = 1) -> BoxSpace:
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.full(shape, high))


class Contenders:
    """A network in numpy and in torch, with the same weights; noisy networks also get noise."""

    def __init__(self, network: nn.Module, twin: ActingNetwork, architecture: Architecture) -> None:
        self._features = Features(architecture, normalize=False)
        self._network = network.eval()
        self._draws = int(getattr(network, "draws", 0))
        self._rng = np.random.default_rng(0)
        modules = nn.ModuleDict({"features": self._features, "network": network})
        twin.load(to_arrays(modules.state_dict()))
        twin.noise = self._rng if self._draws else None
        self.numpy = twin

    @torch.inference_mode()
    def torch(self, obs: Any) -> Any:
        """Draws separate noise for each row, as the numpy network does."""
        features = self._features(tensor_obs(obs))
        if not self._draws:
            return self._network(features).numpy()
        drawn = self._rng.standard_normal((len(obs), self._draws), np.float32)
        noise = torch.from_numpy(drawn)
        rows = [self._network(features[i : i + 1], noise[i]) for i in range(len(obs))]
        return torch.cat(rows).numpy()


class Means(nn.Module):
    """A module that averages quantiles, as quantile agents do to act."""

    def __init__(self, network: nn.Module, fractions: int) -> None:
        super().__init__()
        self.network = network
        self._fractions = torch.linspace(0, 1, fractions)[None]

    def forward(self, features: Any) -> Any:
        if isinstance(self.network, QuantileNetwork):
            return self.network.means(self.network.embed(features), self._fractions)
        return self.network(features).unflatten(1, (ACTIONS, -1)).mean(2)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.network.state_dict(*args, **kwargs)


def forms() -> dict[str, Contenders]:
    """Builds the contenders, keyed by row name."""
    dense, rng = Architecture(space(4), hidden=(256, 256)), np.random.default_rng(0)
    network = partial(Network, dense, rng=rng)
    value = partial(ValueNetwork, dense, ACTIONS, rng, dueling=True)
    quantile = QuantileNetwork(dense, 64, ACTIONS, rng)
    fractions = torch.linspace(0, 1, 32).tolist()
    contenders = {
        "plain": Contenders(network(ACTIONS), NumpyNetwork(dense), dense),
        "dueling": Contenders(value(), NumpyValueNetwork(dense, atoms=1), dense),
        "rainbow": Contenders(
            value(atoms=51, noisy_std=0.5), NumpyValueNetwork(dense, atoms=51), dense
        ),
        "qrdqn": Contenders(
            Means(network(ACTIONS * 50), 50), NumpyNetwork(dense, shares=[1 / 50] * 50), dense
        ),
        "iqn": Contenders(
            Means(quantile, 32), NumpyQuantileNetwork(dense, fractions=fractions), dense
        ),
    }
    for kind, shape in (("minatar_cnn", (10, 10, 4)), ("nature_cnn", (84, 84, 4))):
        images = Architecture(space(*shape, dtype="uint8", high=255), kind=kind, hidden=(256,))
        contenders[kind] = Contenders(Network(images, ACTIONS, rng), NumpyNetwork(images), images)
    return contenders


def microseconds(call: Any, obs: Any, _: int = 0) -> Reading:
    """Returns the mean time per call in one round."""
    calls, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < ROUND_S:
        for _ in range(20):
            call(obs)
        calls += 20
    return {"us": (time.perf_counter() - began_s) / calls * 1e6}


def main() -> None:
    repetitions = make_parser(__doc__, repetitions=10).parse_args().repetitions
    torch.set_num_threads(1)
    for name, form in forms().items():
        shape = {"minatar_cnn": (10, 10, 4), "nature_cnn": (84, 84, 4)}.get(name, (4,))
        for rows in ROWS:
            drawn = np.random.default_rng(0).random((rows, *shape), np.float32)
            obs = (255 * drawn).astype(np.uint8) if len(shape) > 1 else drawn
            np.testing.assert_allclose(form.numpy(obs).shape, form.torch(obs).shape)
            contenders = {
                kind: partial(microseconds, getattr(form, kind), obs) for kind in ("numpy", "torch")
            }
            readings = take_turns(contenders, repetitions)
            times = [column(readings[kind], "us") for kind in ("numpy", "torch")]
            line = {"to_torch": ratios(*times)}
            line |= {kind: summary(results)["us"] for kind, results in readings.items()}
            emit("acting", f"{name}, {rows}", line)


if __name__ == "__main__":
    main()
