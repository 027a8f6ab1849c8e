"""Acting in numpy against acting through the learner's module in torch, for dense layers.

    python -m benchmarks.acting [--repetitions 10]

[256, 256] on 4 numbers, one thread, with 1 and with 8 observations, in µs a call; the two take
turns. A form keeps its twin in numpy while torch takes more than 1.1 times as long with one
observation (`to_torch` below 0.91). Images always act through torch: with numpy_images, which is
gone, NatureCnn and ImpalaResNet took longer.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from border_cli.nn.torch_acting import Call, MakeModule, TorchNetwork, plain
from torch import nn

from benchmarks.table import Reading, column, emit, parser, ratios, summary, take_turns
from border_cli.core.spaces import BoxSpace
from border_cli.nn.architecture import Architecture
from border_cli.nn.features import Features
from border_cli.nn.network import Network, weighted_means
from border_cli.nn.numpy_network import (
    ActingNetwork,
    MakeActing,
    NumpyNetwork,
    NumpyQuantileNetwork,
    NumpyValueNetwork,
)
from border_cli.nn.quantile_network import QuantileNetwork, means_at
from border_cli.nn.saving import copied_arrays
from border_cli.nn.value_network import ValueNetwork, noisy_rows

ROWS = (1, 8)
ACTIONS = 2
ROUND_S = 0.2

Form = tuple[MakeModule, MakeActing, Call]


def box(*shape: int, dtype: str = "float32", high: int = 1) -> BoxSpace:
    return BoxSpace(shape=shape, dtype=dtype, low=np.zeros(shape), high=np.full(shape, high))


def forms() -> dict[str, tuple[Architecture, Form]]:
    """Networks of [256, 256] on 4 numbers."""
    dense = Architecture(box(4), hidden=(256, 256))
    shares, fractions = [1 / 50] * 50, [(i + 0.5) / 32 for i in range(32)]
    value = partial(ValueNetwork, dense, ACTIONS, dueling=True)
    rainbow = partial(ValueNetwork, dense, ACTIONS, dueling=True, atoms=51, noisy_std=0.5)
    made: dict[str, Form] = {
        "plain": (partial(Network, dense, ACTIONS), partial(NumpyNetwork, dense), plain),
        "dueling": (value, partial(NumpyValueNetwork, dense, atoms=1), noisy_rows),
        "noisy dueling C51": (rainbow, partial(NumpyValueNetwork, dense, atoms=51), noisy_rows),
        "QR-DQN": (
            partial(Network, dense, ACTIONS * 50),
            partial(NumpyNetwork, dense, shares),
            partial(weighted_means, shares),
        ),
        "IQN": (
            partial(QuantileNetwork, dense, 64, ACTIONS),
            partial(NumpyQuantileNetwork, dense, fractions),
            partial(means_at, fractions),
        ),
    }
    return {name: (dense, form) for name, form in made.items()}


def acting(architecture: Architecture, form: Form) -> dict[str, ActingNetwork]:
    """Both ways to compute one network, with the same weights; they explore."""
    module, twin, call = form
    features = Features(architecture, normalize=False)
    network = module(torch.Generator().manual_seed(0))
    arrays = copied_arrays(nn.ModuleDict({"features": features, "network": network}))
    both = {
        "numpy": twin(),
        "torch": TorchNetwork(architecture, module, normalize=False, call=call),
    }
    for each in both.values():
        each.load(arrays)
        each.noise = np.random.default_rng(0) if getattr(network, "draws", 0) else None
    return both


def microseconds(network: ActingNetwork, obs: np.ndarray) -> Reading:
    """One call, on average over a round."""
    calls, began_s = 0, time.perf_counter()
    while time.perf_counter() - began_s < ROUND_S:
        for _ in range(20):
            network(obs)
        calls += 20
    return {"us": (time.perf_counter() - began_s) / calls * 1e6}


def main() -> None:
    repetitions = parser(__doc__, repetitions=10).parse_args().repetitions
    torch.set_num_threads(1)
    for name, (architecture, form) in forms().items():
        both = acting(architecture, form)
        for rows in ROWS:
            obs = np.random.default_rng(0).random((rows, 4), np.float32)
            for each in both.values():
                microseconds(each, obs)  # warms up
            contenders = {
                kind: partial(lambda network, _: microseconds(network, obs), network)
                for kind, network in both.items()
            }
            readings = take_turns(contenders, repetitions)
            times = [column(readings[kind], "us") for kind in ("numpy", "torch")]
            line = {"to_torch": ratios(*times)}
            line |= {kind: summary(each)["us"] for kind, each in readings.items()}
            emit("acting", f"{name}, {rows}", line)


if __name__ == "__main__":
    main()
