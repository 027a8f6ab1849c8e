"""Ensembles of networks: each member computes what a separate network would compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor, nn

from border_cli.core.spaces import DictSpace
from border_cli.nn.architecture import Activation, Architecture
from border_cli.nn.ensemble import Critics, EnsembleMlp
from border_cli.nn.network import without_gradient
from tests.support.spaces import numbers, pixels

ACTIVATION = {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "silu": nn.SiLU}
SIZES = (3, 7, 5, 2)


def ensemble(members: int = 3, dropout: float = 0.0, seed: int = 0, **look: object) -> EnsembleMlp:
    architecture = Architecture(numbers(3), **look)  # type: ignore[arg-type]
    draw = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    mlp = EnsembleMlp(members, SIZES, rng, architecture, dropout=dropout).double()
    for parameter in (*mlp.scales, *mlp.shifts):
        nn.init.normal_(parameter, generator=draw)
    return mlp


def single_member(several: EnsembleMlp, member: int, activation: str) -> nn.Sequential:
    """Builds one member as a network of torch's own layers."""
    layers: list[nn.Module] = []
    last = len(several.weights) - 1
    for i, (weight, bias) in enumerate(zip(several.weights, several.biases, strict=True)):
        dense = nn.Linear(weight.shape[1], weight.shape[2]).double()
        dense.weight.data, dense.bias.data = weight[member].T.clone(), bias[member, 0].clone()
        layers.append(dense)
        if i == last:
            break
        if several.scales:
            norm = nn.LayerNorm(weight.shape[2]).double()
            norm.weight.data = several.scales[i][member, 0].clone()
            norm.bias.data = several.shifts[i][member, 0].clone()
            layers.append(norm)
        layers.append(ACTIVATION[activation]())
    return nn.Sequential(*layers)


def randn(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(3).normal(size=shape))


@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "layer norm"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "silu"])
def test_each_member_and_its_gradient_is_that_of_a_network_alone(activation, layer_norm):
    several = ensemble(activation=Activation(activation), layer_norm=layer_norm)
    rows, member_rows = randn(6, 3), randn(3, 6, 3)
    for inputs in (rows, member_rows):
        several.zero_grad()
        inputs.requires_grad_(False)
        outputs = several(inputs)  # [3, 6, 2]
        assert outputs.shape == (3, 6, 2)
        (outputs.square().sum()).backward()
        for i in range(3):
            network = single_member(several, i, activation)
            expected = network(inputs if inputs.dim() == 2 else inputs[i])
            torch.testing.assert_close(outputs[i], expected, rtol=1e-12, atol=1e-12)
            expected.square().sum().backward()
            dense = [layer for layer in network if isinstance(layer, nn.Linear)]
            for layer, weight, bias in zip(dense, several.weights, several.biases, strict=True):
                torch.testing.assert_close(weight.grad[i].T, layer.weight.grad)
                torch.testing.assert_close(bias.grad[i, 0], layer.bias.grad)


@pytest.mark.parametrize("layer_norm", [False, True], ids=["", "layer norm"])
def test_chosen_members_answer_as_they_do_among_all(layer_norm):
    several, rows = ensemble(members=5, layer_norm=layer_norm), randn(6, 3)
    chosen = torch.tensor([3, 1])
    torch.testing.assert_close(several(rows, None, chosen), several(rows)[[3, 1]])


def test_dropout_comes_before_layer_norm_and_activation():
    """The order in figure 1 of the DroQ paper: weights, dropout, layer norm, activation."""
    several, rows = ensemble(dropout=0.5, layer_norm=True), randn(6, 3)
    masks = several.dropout_masks(6, torch.Generator().manual_seed(1))
    assert masks is not None
    assert [dropout_mask.shape for dropout_mask in masks] == [(3, 6, 7), (3, 6, 5)]
    outputs = several(rows, [dropout_mask.double() for dropout_mask in masks])
    for member in range(3):
        hidden = rows
        layers = list(single_member(several, member, "relu"))
        for i, mask in enumerate(masks):
            dense, norm, activate = layers[3 * i : 3 * i + 3]
            hidden = activate(norm(dense(hidden) * mask[member]))
        torch.testing.assert_close(outputs[member], layers[-1](hidden))
    chosen = torch.tensor([2, 0])
    some = several(rows, [dropout_mask.double() for dropout_mask in masks], chosen)
    torch.testing.assert_close(some, outputs[[2, 0]])


def test_the_share_of_dropout_is_left_out_and_the_mean_stays():
    architecture = Architecture(numbers(3))
    several = EnsembleMlp(2, (3, 64, 1), np.random.default_rng(0), architecture, dropout=0.3)
    masks = several.dropout_masks(1_000, torch.Generator().manual_seed(0))
    (mask,) = masks
    assert mask.unique().tolist() == pytest.approx([0, 1 / 0.7])
    # The tolerance is 3.9 standard deviations.
    assert (mask == 0).float().mean().item() == pytest.approx(0.3, abs=0.005)


def test_weights_begin_as_those_of_torchs_layers():
    for weight in ensemble(seed=1).weights:
        bound = weight.shape[1] ** -0.5
        assert 0.7 * bound < weight.abs().max().item() <= bound
        assert not torch.equal(weight[0], weight[1])


def critics(seed: int = 0, **look: object) -> Critics:
    space = look.pop("space", numbers(3))
    architecture = Architecture(space, hidden=(6, 4), **look)  # type: ignore[arg-type]
    return Critics(architecture, 2, 3, np.random.default_rng(seed))


def test_critics_see_observation_and_action_side_by_side():
    several = critics()
    obs, action = torch.randn(5, 3), torch.randn(5, 2)
    expected = several.mlp(torch.cat((obs, action), dim=1))
    assert torch.equal(several(obs, action), expected)
    assert expected.shape == (3, 5, 1)


def test_each_critic_has_convolutions_of_its_own():
    several = critics(space=DictSpace({"eye": pixels(1, 36, 36), "arm": numbers(3)}))
    draw = torch.Generator().manual_seed(0)
    features = {
        "eye": torch.randint(256, (4, 1, 36, 36), generator=draw, dtype=torch.uint8),
        "": torch.randn(4, 3, generator=draw),
    }
    action = torch.randn(4, 2, generator=draw)
    values = several(features, action)  # [3, 4, 1]
    for i, torso in enumerate(several.torsos):
        rows = torch.cat((torso(features), action), dim=1)
        hidden = rows
        layers = list(zip(several.mlp.weights, several.mlp.biases, strict=True))
        for weight, bias in layers[:-1]:
            hidden = F.relu(hidden @ weight[i] + bias[i])
        expected = hidden @ layers[-1][0][i] + layers[-1][1][i]
        torch.testing.assert_close(values[i], expected)
    chosen = several(features, action, None, torch.tensor([2, 0]))
    torch.testing.assert_close(chosen, values[[2, 0]])


def test_through_fixed_critics_gradients_reach_actions_alone():
    several = critics()
    fixed, first = without_gradient(several), several.first_critic()
    obs, action = torch.randn(5, 3), torch.randn(5, 2, requires_grad=True)
    assert torch.equal(fixed(obs, action), several(obs, action))
    assert torch.equal(first(obs, action), several(obs, action)[:1])
    (expected,) = torch.autograd.grad(several(obs, action).sum(), action)
    (gradient,) = torch.autograd.grad(fixed(obs, action).sum(), action)
    assert torch.equal(expected, gradient)
    assert not any(
        parameter.requires_grad for parameter in (*fixed.parameters(), *first.parameters())
    )
    with torch.no_grad():
        several.mlp.weights[1].add_(1)
    assert torch.equal(fixed(obs, action), several(obs, action))
    assert torch.equal(first(obs, action), several(obs, action)[:1])
