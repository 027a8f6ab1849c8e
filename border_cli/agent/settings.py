"""Settings that several agents share. Imports neither torch nor numpy until they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from border_cli.core.config import Activation, AgentConfig, NetworkKind
from border_cli.core.settings import setting

if TYPE_CHECKING:
    from border_cli.core.spaces import Space
    from border_cli.nn.architecture import Architecture

BOUND_BY_ARITHMETIC = 10_000_000  # multiplications between hidden layers, of one pass


class Loss(StrEnum):
    """What is minimised of a TD error."""

    huber = "huber"
    mse = "mse"


class MatmulPrecision(StrEnum):
    """How exact the products of float32 matrices are."""

    highest = "highest"
    high = "high"
    medium = "medium"


@dataclass(kw_only=True)
class LearnerConfig(AgentConfig):
    """How an agent that learns with torch computes its updates, and what it is given."""

    num_threads: int | None = setting(
        None,
        "torch's threads for updates; null: one, or all spare cores where an update is bound by "
        "arithmetic (large networks and batches)",
        low=1,
    )
    matmul_precision: MatmulPrecision = setting(
        MatmulPrecision.highest,
        "of float32 products: highest; high may use TF32, medium bfloat16, where the processor or "
        "GPU has it",
    )
    compile: bool = setting(
        False,
        "torch.compile of the update, with CUDA graphs on a GPU; the start takes seconds longer",
    )
    normalize_obs: bool = setting(
        False,
        "the real numbers of an observation get mean 0 and deviation 1, by all that was sampled so "
        "far; saved with the model; integers and pixels go by the bounds of their space",
    )
    normalize_reward: bool = setting(
        False,
        "divides rewards by the standard deviation of the running discounted returns so far; saved "
        "with the model",
    )

    @property
    def needs_returns(self) -> bool:
        return self.normalize_reward

    def refuse_beside(self, unused: Sequence[str], allowed: str) -> None:
        """Raises ConfigError for the first of these settings that is not at its default."""
        defaults = {each.name: each.default for each in fields(self)}
        for name in unused:
            value = getattr(self, name)
            if value != defaults[name]:
                self.refuse(name, value, allowed)


@dataclass(kw_only=True)
class NetworkConfig(LearnerConfig):
    """How the networks of an agent look."""

    network: NetworkKind = setting(
        NetworkKind.auto,
        "what images (uint8 or bool) go through first: minatar_cnn (from 6 x 6 on), nature_cnn "
        "(from 36 x 36 on) or impala_resnet (from 6 x 6 on); mlp takes pixels as numbers; auto: "
        "nature_cnn, for smaller images minatar_cnn",
    )
    hidden: list[int] = setting([256, 256], "units of each hidden layer", low=1, takes_memory=True)
    activation: Activation = setting(Activation.relu, "between layers: relu, tanh, elu or silu")
    layer_norm: bool = setting(False, "normalises each hidden layer before its activation")

    @property
    def rows_per_update(self) -> int:
        """How many rows go through the hidden layers at once."""
        return self.batch_size

    def bound_by_arithmetic(self, observation: Space) -> bool:
        """Whether products of large matrices take most of an update, which threads can share.

        Convolutions are always so, but for the single one of the MinAtar network, where it is the
        dense layer after it that counts. Measured on two cores: two threads gain 7 % at [256, 256]
        and 64 rows, 40 % at 256 rows.
        """
        from border_cli.nn.image_space import MINATAR_WINDOWS, size_after

        images = self.architecture(observation).images.values()
        if any(each.network != NetworkKind.minatar_cnn for each in images):
            return True
        convolved = [size_after(MINATAR_WINDOWS, each.shape) for each in images]
        sizes = [sum(convolved), *self.hidden] if convolved else self.hidden
        products = sum(inputs * outputs for inputs, outputs in pairwise(sizes))
        return self.rows_per_update * products >= BOUND_BY_ARITHMETIC

    @property
    def told_by_no_weight(self) -> dict[str, str | float]:
        """Settings by which weights of the same shapes mean something else."""
        return {"activation": str(self.activation)}

    def architecture(self, observation: Space) -> Architecture:
        """The form of the networks for these observations."""
        from border_cli.nn.architecture import Architecture

        return Architecture(
            observation=observation,
            kind=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            layer_norm=self.layer_norm,
        )
