"""Convolutional networks in torch, against torch's own layers and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from border_cli.nn.encoding import IDENTITY, Scaling
from border_cli.nn.images import (
    Convolution,
    ImpalaResNet,
    MinatarCnn,
    NatureCnn,
    Residual,
    max_pool,
)

NETWORKS = (MinatarCnn, NatureCnn, ImpalaResNet)

Network = MinatarCnn | NatureCnn | ImpalaResNet


def seeded() -> np.random.Generator:
    return np.random.default_rng(0)


def pixels(*shape: int) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def with_biases(network: nn.Module) -> nn.Module:
    """Sets non-zero biases and converts the network to double precision."""
    draw = torch.Generator().manual_seed(5)
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.uniform_(-0.1, 0.1, generator=draw)
    return network.double()


def plain_convolution(convolution: Convolution, stride: int, padding: int) -> nn.Conv2d:
    outputs, inputs, side, _ = convolution.weight.shape
    plain = nn.Conv2d(inputs, outputs, side, stride, padding, dtype=torch.float64)
    plain.load_state_dict(convolution.state_dict())
    return plain


def pad_as_in_tensorflow(images: Tensor) -> Tensor:
    """Pads images for 3 x 3 pooling with stride 2, so that n pixels become ceil(n / 2)."""
    edges: list[int] = []
    for size in (images.shape[3], images.shape[2]):  # F.pad starts with the last axis
        missing = max((-(-size // 2) - 1) * 2 + 3 - size, 0)
        edges += [missing // 2, missing - missing // 2]
    return F.pad(images, edges, value=-torch.inf)


def reference_resnet(network: ImpalaResNet, images: Tensor) -> Tensor:
    """Computes the same network with torch's own layers."""
    for section in network.sections:
        images = plain_convolution(section.convolution, 1, 1)(images)
        images = F.max_pool2d(pad_as_in_tensorflow(images), 3, 2)
        for block in section.blocks:
            rest = plain_convolution(block.first, 1, 1)(images.relu())
            images = images + plain_convolution(block.second, 1, 1)(rest.relu())
    return images.relu().flatten(1)


def test_the_nature_network_is_that_of_torchs_own_layers():
    network = with_biases(NatureCnn((3, 50, 37), seeded()))
    first, second, third = network.convolutions
    plain = nn.Sequential(
        plain_convolution(first, 4, 0),
        nn.ReLU(),
        plain_convolution(second, 2, 0),
        nn.ReLU(),
        plain_convolution(third, 1, 0),
        nn.ReLU(),
        nn.Flatten(),
    )
    images = pixels(2, 3, 50, 37)
    torch.testing.assert_close(network(images), plain(images.double() / 255), rtol=1e-9, atol=1e-9)


def test_the_minatar_network_is_that_of_its_paper():
    """The authors use `nn.Conv2d(in_channels, 16, kernel_size=3, stride=1)` and ReLU."""
    network = with_biases(MinatarCnn((4, 10, 10), seeded(), IDENTITY))
    (first,) = network.convolutions
    plain = nn.Sequential(plain_convolution(first, 1, 0), nn.ReLU(), nn.Flatten())
    images = pixels(5, 4, 10, 10) > 127
    torch.testing.assert_close(network(images), plain(images.double()), rtol=1e-9, atol=1e-9)
    assert network.size == 1024  # num_linear_units in the authors' code


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "scaling",
    [
        Scaling(0.0, 0.25),
        Scaling(-100.0, 1 / 300),
        Scaling(np.array([0, 50, 9], np.float32), np.array([1, 0.5, 0], np.float32)),
    ],
)
def test_scaling_pixels_in_the_network_equals_scaling_them_beforehand(
    network: type[Network], scaling: Scaling
):
    """Includes the edges, which the ResNet pads with the lowest pixel value."""
    scaled, plain = (
        with_biases(network((3, 40, 37), seeded(), pixel_scaling))
        for pixel_scaling in (scaling, IDENTITY)
    )
    images = pixels(2, 3, 40, 37)
    low, factor = (np.reshape(array, (-1, 1, 1)) for array in scaling)
    before = (images.double() - torch.from_numpy(low)) * torch.from_numpy(factor)
    torch.testing.assert_close(scaled(images), plain(before), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sides", [(40, 40), (37, 50), (41, 39)])
def test_the_resnet_is_that_of_torchs_own_layers(sides: tuple[int, int]):
    network = with_biases(ImpalaResNet((3, *sides), seeded()))
    images = pixels(2, 3, *sides)
    rows = network(images)
    torch.testing.assert_close(
        rows, reference_resnet(network, images.double() / 255), rtol=1e-9, atol=1e-9
    )
    assert 0.2 < (rows > 0).double().mean() < 0.95  # otherwise the comparison would be trivial


@pytest.mark.parametrize(
    ("network", "shape", "size"),
    [
        (MinatarCnn, (10, 10, 10), 16 * 8 * 8),
        (MinatarCnn, (1, 6, 7), 16 * 4 * 5),
        (ImpalaResNet, (1, 6, 7), 32),
        (NatureCnn, (4, 84, 84), 64 * 7 * 7),
        (NatureCnn, (1, 36, 36), 64),
        (NatureCnn, (3, 210, 160), 64 * 22 * 16),
        (ImpalaResNet, (4, 84, 84), 32 * 11 * 11),
        (ImpalaResNet, (3, 72, 96), 32 * 9 * 12),
    ],
)
def test_the_size_is_that_of_the_rows(
    network: type[Network], shape: tuple[int, int, int], size: int
):
    built = network(shape, seeded())
    rows = built(pixels(2, *shape))
    assert (built.size, rows.shape, rows.dtype) == (size, (2, size), torch.float32)


def test_pooling_of_an_even_side_starts_at_the_first_pixel():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert max_pool(image).tolist() == [[[[10, 11], [14, 15]]]]


def test_pooling_of_an_odd_side_starts_before_the_first_pixel():
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert max_pool(image).tolist() == [[[[4, 5], [7, 8]]]]
    assert max_pool(-1 - image).tolist() == [[[[-1, -2], [-4, -5]]]]


def test_height_and_width_are_pooled_each_in_its_own_way():
    image = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert max_pool(image).tolist() == [[[[4, 5]]]]


def test_a_residual_block_worked_by_hand():
    block = Residual(1)
    with torch.no_grad():
        for convolution, weight, bias in ((block.first, 2, 1), (block.second, 3, -1)):
            convolution.weight.zero_()
            convolution.weight[0, 0, 1, 1] = weight  # center of the kernel
            convolution.bias.fill_(bias)
    images = torch.tensor([4.0, -1.0, -9.0]).reshape(1, 1, 1, 3)
    # 4 + 3 (2 relu(4) + 1) - 1 = 30;  -1 + 3 (2 relu(-1) + 1) - 1 = 1;  -9 + 2 = -7
    assert block(images).flatten().tolist() == [30, 1, -7]
    assert images.flatten().tolist() == [4, -1, -9]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_layout_and_type_of_the_pixels_do_not_matter(network: type[Network]):
    built = network((3, 40, 44), seeded())
    images = pixels(2, 40, 44, 3).permute(0, 3, 1, 2)  # channels last in memory
    rows = built(images)
    torch.testing.assert_close(built(images.contiguous()), rows)
    real = images.float().contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(built(real), rows)
    assert torch.equal(real, images.float())  # the input is not scaled in place


def test_first_weights_of_the_nature_network_fill_one_over_the_root_of_the_inputs():
    first, second, third = NatureCnn((4, 84, 84), seeded()).convolutions
    (minatar,) = MinatarCnn((4, 10, 10), seeded()).convolutions
    assert 0.9 / 6 < minatar.weight.abs().max() <= 1.0001 / 6  # 4 * 3 * 3 = 36
    # 4 * 8 * 8 = 256, 32 * 4 * 4 = 512, 64 * 3 * 3 = 576
    for convolution, bound in ((first, 0.0625), (second, 0.0441942), (third, 0.0416667)):
        for parameter in (convolution.weight, convolution.bias):
            assert 0.8 * bound < parameter.abs().max() <= bound * 1.0001
        assert convolution.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_first_weights_of_the_resnet_are_normal_up_to_two_deviations():
    last = ImpalaResNet((4, 36, 36), seeded()).sections[2].blocks[1].second
    deviation = 288**-0.5  # 32 * 3 * 3 inputs
    assert 1.98 * deviation < last.weight.abs().max() <= 2 * deviation * 1.0001
    # A standard normal truncated to [-2, 2] has standard deviation 0.8796.
    assert last.weight.std().item() == pytest.approx(0.8796 * deviation, rel=0.02)
    assert last.bias.count_nonzero() == 0


@pytest.mark.parametrize("network", NETWORKS)
def test_gradients_lie_in_memory_as_the_weights_do(network: type[Network]):
    built = network((3, 36, 40), seeded())
    loss = built(pixels(4, 3, 36, 40)).square().sum()
    parameters = list(built.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        assert gradient.stride() == parameter.stride()


@pytest.mark.parametrize(
    "scaling", [IDENTITY, Scaling(np.array(3, np.float32), np.array(0.01, np.float32))]
)
def test_rounded_convolutions_give_the_same_within_the_eight_bits_of_bfloat16(
    scaling: Scaling,
) -> None:
    exact, rounded = (NatureCnn((4, 44, 40), seeded(), scaling) for _ in range(2))
    rounded.rounds = True
    images = pixels(3, 4, 44, 40)
    rounded_rows, exact_rows = rounded(images), exact(images)
    assert rounded_rows.dtype == torch.float32
    assert not torch.equal(rounded_rows, exact_rows)
    assert (rounded_rows - exact_rows).norm() < 0.02 * exact_rows.norm()
    rounded_rows.sum().backward()
    exact_rows.sum().backward()
    for actual, reference in zip(rounded.parameters(), exact.parameters(), strict=True):
        assert actual.grad is not None
        assert reference.grad is not None
        assert actual.grad.dtype == torch.float32
        assert actual.grad.is_contiguous()
        assert (actual.grad - reference.grad).norm() < 0.03 * reference.grad.norm()
