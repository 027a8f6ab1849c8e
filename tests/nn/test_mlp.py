"""First weights and the forward pass."""

from __future__ import annotations

import torch

from border_cli.nn.mlp import Mlp


def mlp(seed: int) -> Mlp:
    return Mlp([100, 50, 3], torch.Generator().manual_seed(seed))


def flat(network: Mlp) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in network.parameters()])


def test_weights_come_from_the_seed_alone_and_leave_the_global_generator_still():
    before = torch.get_rng_state()
    first = mlp(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    assert torch.equal(flat(first), flat(mlp(1)))
    assert not torch.equal(flat(first), flat(mlp(2)))


def test_first_weights_fill_the_range_of_one_over_the_root_of_the_inputs():
    weight, bias = mlp(0).layers[0].parameters()  # 100 inputs: between -0.1 and 0.1
    assert 0.099 < weight.abs().max() <= 0.1
    assert abs(weight.mean()) < 0.003  # 5,000 draws of standard deviation 0.058
    assert 0.09 < bias.abs().max() <= 0.1


def test_values_worked_by_hand():
    network = Mlp([1, 2, 1], torch.Generator())
    network.load_state_dict(
        {
            "layers.0.weight": torch.tensor([[1.0], [-1.0]]),
            "layers.0.bias": torch.tensor([0.0, 1.0]),
            "layers.1.weight": torch.tensor([[2.0, 3.0]]),
            "layers.1.bias": torch.tensor([-1.0]),
        }
    )
    # x = 4: relu(4, -3) = (4, 0), 2*4 - 1 = 7;  x = -1: relu(-1, 2) = (0, 2), 3*2 - 1 = 5
    assert network(torch.tensor([[4.0], [-1.0]])).tolist() == [[7], [5]]
