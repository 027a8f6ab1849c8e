"""Implicit quantile networks: the paper's formula, and numpy against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.nn.architecture import Activation, Architecture
from border_cli.nn.features import Features
from border_cli.nn.numpy_network import NumpyQuantileNetwork
from border_cli.nn.quantile_network import QuantileNetwork
from border_cli.nn.tensors import tensor_obs
from tests.support.spaces import drawn, numbers, pixels

NUMBERS, IMAGE = numbers(3), pixels(40, 36, 1)
FRACTIONS = [0.05, 0.3, 0.31, 0.9]


def network(architecture: Architecture, seed: int = 0) -> QuantileNetwork:
    return QuantileNetwork(architecture, 5, 2, np.random.default_rng(seed))


def test_the_quantiles_are_those_of_the_papers_formula():
    """Computes f(psi(s) * relu(sum over i = 0 … n - 1 of cos(pi i tau) w_ij + b_j)) row by row."""
    built = network(Architecture(NUMBERS, hidden=(6, 4))).double()
    weights = {name: value.detach().numpy() for name, value in built.named_parameters()}

    def dense(name: str, rows: Any) -> Any:
        return weights[f"{name}.weight"] @ rows + weights[f"{name}.bias"]

    rng = np.random.default_rng(1)
    obs, fractions = rng.normal(size=(4, 3)), rng.random((4, 2))
    quantiles = built(torch.from_numpy(obs), torch.from_numpy(fractions)).detach().numpy()
    assert quantiles.shape == (4, 2, 2)
    for b in range(4):
        psi = np.maximum(dense("psi.layers.0", obs[b]), 0)
        assert psi.shape == (6,)
        for n in range(2):
            phi = np.maximum(dense("phi", np.cos(np.pi * np.arange(5) * fractions[b, n])), 0)
            q = dense("f.layers.1", np.maximum(dense("f.layers.0", psi * phi), 0))
            np.testing.assert_allclose(quantiles[b, n], q, rtol=1e-6)


def test_means_average_the_quantiles_and_shared_fractions_apply_to_every_row():
    built = network(Architecture(NUMBERS, hidden=(6, 4)))
    rows = built.embed(torch.from_numpy(drawn(NUMBERS, 7)))
    fractions = torch.tensor([FRACTIONS])
    quantiles = built.quantiles(rows, fractions)
    assert quantiles.shape == (7, 4, 2)
    np.testing.assert_allclose(
        built.means(rows, fractions).detach(), quantiles.mean(1).detach(), atol=1e-6
    )
    quantiles_by_row = built.quantiles(rows, fractions.expand(7, 4))
    np.testing.assert_allclose(quantiles_by_row.detach(), quantiles.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("space", "settings"),
    [
        (NUMBERS, {"hidden": (6, 5, 4)}),
        (NUMBERS, {"hidden": (6,)}),
        (NUMBERS, {"hidden": ()}),
        (NUMBERS, {"hidden": (6, 5, 4), "layer_norm": True, "activation": Activation.silu}),
        (NUMBERS, {"hidden": (6, 5), "activation": Activation.tanh}),
        (DiscreteSpace(3), {"hidden": (6, 5)}),
        (IMAGE, {"hidden": (6,)}),
        (DictSpace({"eye": IMAGE, "arm": NUMBERS}), {"hidden": (6, 5)}),
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_numpy_gives_the_mean_that_torch_gives(space: Space, settings: Any, rows: int):
    architecture = Architecture(space, **settings)
    built = network(architecture, seed=3)
    arrays = {f"network.{name}": value.numpy() for name, value in built.state_dict().items()}
    twin = NumpyQuantileNetwork(architecture, fractions=FRACTIONS)
    twin.load(arrays)
    obs = drawn(space, rows)
    with torch.no_grad():
        features = Features(architecture, normalize=False)(tensor_obs(obs))
        expected = built(features, torch.tensor([FRACTIONS])).mean(1).numpy()  # [rows, 2]
    means = twin(obs)
    assert means.dtype == np.float32
    np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)


def test_the_last_hidden_layer_stands_behind_the_product():
    shapes = {
        (): ([], [(3, 2)], 3),
        (8,): ([(3, 8)], [(8, 2)], 8),
        (8, 7): ([(3, 8)], [(8, 7), (7, 2)], 8),
        (8, 7, 6): ([(3, 8), (8, 7)], [(7, 6), (6, 2)], 7),
    }

    def layers(mlp: Any) -> list[tuple[int, int]]:
        return [tuple(layer.weight.T.shape) for layer in mlp.layers]

    for hidden, (psi, f, size) in shapes.items():
        built = network(Architecture(NUMBERS, hidden=hidden))
        assert (layers(built.psi), layers(built.f)) == (psi, f)
        assert tuple(built.phi.weight.shape) == (size, 5)
    pixels = network(Architecture(IMAGE, hidden=(8,)))
    assert layers(pixels.psi) == []
    assert layers(pixels.f) == [(pixels.torso.size, 8), (8, 2)]
