"""Settings that every agent that learns with torch has. Never imports torch.

The form of the networks, which takes numpy along, is imported by the method that makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from border_cli.registry import NETWORKS
from border_cli.settings.base import setting
from border_cli.settings.networks import Activation, Matmul, MatmulPrecision
from border_cli.settings.run import AgentConfig

if TYPE_CHECKING:
    from border_cli.core.spaces import Space
    from border_cli.nn.architecture import Architecture


class Loss(StrEnum):
    """The loss of a TD error."""

    huber = "huber"
    mse = "mse"


class Augmentation(StrEnum):
    """The augmentation of sampled images."""

    none = "none"
    shift = "shift"


@dataclass(kw_only=True)
class LearnerConfig(AgentConfig):
    """Settings that every agent that learns with torch has."""

    num_threads: int | None = setting(
        None,
        "torch threads for updates, whatever OMP_NUM_THREADS says; null: one. More pay only if "
        "updates take milliseconds and nothing else needs the cores",
        low=1,
        high=1_024,
        may_change=True,
    )
    matmul_precision: MatmulPrecision = setting(
        MatmulPrecision.highest,
        "precision of float32 matrix products; high may use TF32 and medium bfloat16, if the "
        "hardware supports it. medium also rounds the operands of nature_cnn's convolutions, on "
        "CPUs that multiply bfloat16",
    )
    matmul: Matmul = setting(
        Matmul.auto,
        "library of the matrix products of dense layers on a CPU: mkl (torch's own) or onednn; "
        "auto: onednn on AMD processors with AVX-512, else mkl; always mkl with "
        "matmul_precision=medium",
        may_change=True,
    )
    compile: bool = setting(
        False,
        "compiles the update with torch.compile, using CUDA graphs on a GPU; startup takes "
        "seconds longer",
        may_change=True,
    )
    normalize_obs: bool = setting(
        False,
        "standardises float observations with running statistics, which are saved with the "
        "model; integers and pixels are scaled by the bounds of their space in any case",
    )
    normalize_reward: bool = setting(
        False,
        "divides rewards by the standard deviation of the running discounted returns, which is "
        "saved with the model",
    )
    network: str = setting(
        "auto",
        "encoder of images (uint8 or bool): minatar_cnn (at least 6 x 6), nature_cnn (at least "
        "36 x 36), der_cnn (at least 25 x 25) or impala_resnet (at least 6 x 6); mlp: none, "
        "pixels are plain numbers; auto: nature_cnn, or minatar_cnn for smaller images; or a "
        "torch.nn.Module of your own, registered under a name, for all of the observation",
        choices=NETWORKS.names,
    )
    hidden: list[int] = setting([256, 256], "units of each hidden layer", low=1, takes_memory=True)
    activation: Activation = setting(Activation.relu, "activation function of the hidden layers")
    layer_norm: bool = setting(False, "applies layer normalisation before each activation")
    network_kwargs: dict[str, Any] = setting(
        {}, "arguments of a network of your own, after the observation space"
    )
    augment: Augmentation = setting(
        Augmentation.none,
        "shift: sampled images are shifted at random by up to 4 pixels, edges repeated (DrQ)",
    )
    optimizer: str = setting(
        "adam",
        "optimizer of the networks: adam, or the name of a class in torch.optim, such as AdamW, "
        "RMSprop or SGD; learned coefficients always have adam",
    )
    optimizer_kwargs: dict[str, Any] = setting(
        {}, "arguments of an optimizer of torch.optim, without lr"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network_kwargs and NETWORKS.target(self.network) is None:
            allowed = f"must be empty with agent.network={self.network}: only your own take them"
            self.refuse("network_kwargs", self.network_kwargs, allowed)
        if self.optimizer_kwargs and self.optimizer == "adam":
            allowed = "must be empty with agent.optimizer=adam; torch's own is agent.optimizer=Adam"
            self.refuse("optimizer_kwargs", self.optimizer_kwargs, allowed)
        if "lr" in self.optimizer_kwargs:
            allowed = "must not have lr, which is agent.learning_rate"
            self.refuse("optimizer_kwargs", self.optimizer_kwargs, allowed)

    @property
    def needs_returns(self) -> bool:
        return self.normalize_reward

    @property
    def semantic_settings(self) -> dict[str, str | float]:
        """Settings by which weights of the same shapes mean something else."""
        own = NETWORKS.target(self.network) is not None
        named = {"network": self.network} if own else {}
        return {"activation": str(self.activation), **named}

    def architecture(self, observation: Space) -> Architecture:
        """The form of the networks for these observations."""
        from border_cli.core.spaces import without_mask
        from border_cli.nn.architecture import Architecture

        return Architecture(
            observation=without_mask(observation),
            kind=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            layer_norm=self.layer_norm,
            target=NETWORKS.target(self.network),
            kwargs=self.network_kwargs,
            matmul=self.matmul,
            matmul_precision=self.matmul_precision,
        )
