"""How the networks of an agent look: chosen from the observation space, overridden by settings.

Never imports torch: actors build the same networks in numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.core.errors import ConfigError
from border_cli.core.spaces import BoxSpace, DictSpace, LeafSpace, Space
from border_cli.nn.image_space import image_shape
from border_cli.nn.numpy_encoder import encoded_size

ImageShape = tuple[int, int, int]  # channels, height, width

LAYER_NORM_EPSILON = 1e-5  # of a variance; torch's own


class Activation(StrEnum):
    """What stands between two dense layers."""

    relu = "relu"
    tanh = "tanh"
    elu = "elu"
    silu = "silu"


class NetworkKind(StrEnum):
    """What images go through first; everything else is concatenated to its result."""

    auto = "auto"
    mlp = "mlp"
    nature_cnn = "nature_cnn"
    impala_resnet = "impala_resnet"


@dataclass(frozen=True, slots=True)
class Architecture:
    """The form of a network up to what it puts out; the same for all networks of an agent."""

    observation: Space
    kind: NetworkKind = NetworkKind.auto
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = Activation.relu
    layer_norm: bool = False

    def __post_init__(self) -> None:
        wanted = (NetworkKind.nature_cnn, NetworkKind.impala_resnet)
        if self.kind in wanted and not self.images:
            raise ConfigError(
                f"agent.network={self.kind} needs an image in the observation (uint8, at least "
                "36 x 36; allowed here: auto, mlp)"
            )

    @property
    def images(self) -> dict[str, ImageShape]:
        """The parts that go through convolutions, by their key; "" is an observation by itself."""
        if self.kind == NetworkKind.mlp:
            return {}
        shapes = {key: _image_shape(part) for key, part in _parts(self.observation).items()}
        return {key: shape for key, shape in shapes.items() if shape is not None}

    @property
    def image_network(self) -> NetworkKind:
        """nature_cnn or impala_resnet; what auto means here."""
        return NetworkKind.nature_cnn if self.kind == NetworkKind.auto else self.kind

    @property
    def rows(self) -> Space | None:
        """The rest of the observation, which becomes rows of numbers; None where all is images."""
        images = self.images
        if not images:
            return self.observation
        rest = {key: part for key, part in _parts(self.observation).items() if key not in images}
        return DictSpace(rest) if rest else None

    @property
    def row_size(self) -> int:
        """Numbers per row."""
        return 0 if self.rows is None else encoded_size(self.rows)


def _parts(space: Space) -> dict[str, LeafSpace]:
    return space.spaces if isinstance(space, DictSpace) else {"": space}


def _image_shape(space: LeafSpace) -> ImageShape | None:
    return image_shape(space) if isinstance(space, BoxSpace) else None
