"""Settings common to all agents that learn with networks. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from border_cli.registry import NETWORKS
from border_cli.settings.base import setting
from border_cli.settings.networks import Activation, BackendName, Matmul, MatmulPrecision
from border_cli.settings.run import AgentConfig

if TYPE_CHECKING:
    from border_cli.core.spaces import Space
    from border_cli.nn.architecture import Architecture


class Loss(StrEnum):
    """Loss functions for TD errors."""

    huber = "huber"
    mse = "mse"


class Augmentation(StrEnum):
    """Augmentations for image observations."""

    none = "none"
    shift = "shift"


@dataclass(kw_only=True)
class LearnerConfig(AgentConfig):
    """Settings common to all agents that learn with networks."""

    # Whether numpy can run the agent's dense networks. Not inherited: the agent of a subclass may
    # contain torch code.
    numpy_networks: ClassVar[bool] = False

    backend: BackendName = setting(
        BackendName.auto,
        "library that computes updates. auto chooses numpy for dqn, discrete_cql, qrdqn and ppo on "
        "a CPU with dense layers of relu or tanh and fewer than half a million weights before the "
        "output layer; such a run starts without torch. torch runs every agent",
        may_change=True,
    )
    num_threads: int | None = setting(
        None,
        "number of torch threads for updates, overriding OMP_NUM_THREADS; null means one. More "
        "threads help only if an update takes milliseconds and the cores are otherwise idle",
        low=1,
        high=1_024,
        may_change=True,
    )
    matmul_precision: MatmulPrecision = setting(
        MatmulPrecision.highest,
        "precision of float32 matrix products; high may use TF32 and medium may use bfloat16, if "
        "the hardware supports it. On CPUs with bfloat16 arithmetic, medium also rounds the "
        "operands of nature_cnn's convolutions",
    )
    matmul: Matmul = setting(
        Matmul.auto,
        "matmul backend of dense layers on a CPU: mkl (torch's default) or onednn. auto chooses "
        "onednn on AMD processors with AVX-512, and mkl otherwise; matmul_precision=medium always "
        "uses mkl",
        may_change=True,
    )
    compile: bool = setting(
        False,
        "compiles the update with torch.compile, using CUDA graphs on a GPU; adds seconds to "
        "startup",
        may_change=True,
    )
    normalize_obs: bool | None = setting(
        False,
        "standardises float observations with running statistics, which are saved with the "
        "model; integers are one-hot encoded, or scaled by bounds of up to 65,536. null means "
        "true if there are floats and no built-in convolutions",
    )
    normalize_reward: bool = setting(
        False,
        "divides rewards by the standard deviation of the running discounted return, which is "
        "saved with the model",
    )
    network: str = setting(
        "auto",
        "encoder of images (uint8 or bool): minatar_cnn (at least 6 x 6), nature_cnn (at least "
        "36 x 36), der_cnn (at least 25 x 25) or impala_resnet (at least 6 x 6). mlp feeds pixels "
        "to the dense layers. auto chooses nature_cnn, or minatar_cnn for smaller images. The name "
        "of a registered custom torch.nn.Module selects it for the whole observation",
        choices=NETWORKS.names,
    )
    hidden: list[int] = setting([256, 256], "units per hidden layer", low=1, takes_memory=True)
    activation: Activation = setting(Activation.relu, "activation function of the hidden layers")
    layer_norm: bool = setting(False, "applies layer normalisation before each activation")
    network_kwargs: dict[str, Any] = setting(
        {}, "keyword arguments of a custom network, in addition to the observation space"
    )
    augment: Augmentation = setting(
        Augmentation.none,
        "shift moves sampled images by up to 4 pixels at random, repeating the edges (DrQ)",
    )
    optimizer: str = setting(
        "adam",
        "optimizer of the networks: adam, or the name of a class in torch.optim, such as AdamW, "
        "RMSprop or SGD; learned coefficients always use adam",
    )
    optimizer_kwargs: dict[str, Any] = setting(
        {}, "keyword arguments of an optimizer of torch.optim, except lr"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network_kwargs and NETWORKS.target(self.network) is None:
            allowed = f"must be empty with agent.network={self.network}, which takes no arguments"
            self.refuse("network_kwargs", self.network_kwargs, allowed)
        if self.optimizer_kwargs and self.optimizer == "adam":
            allowed = "must be empty with agent.optimizer=adam; use agent.optimizer=Adam instead"
            self.refuse("optimizer_kwargs", self.optimizer_kwargs, allowed)
        if "lr" in self.optimizer_kwargs:
            allowed = "must not contain lr (use agent.learning_rate)"
            self.refuse("optimizer_kwargs", self.optimizer_kwargs, allowed)

    @property
    def needs_returns(self) -> bool:
        return self.normalize_reward

    @property
    def semantic_settings(self) -> dict[str, str | float]:
        """Settings that change the meaning of weights without changing their shapes."""
        is_custom = NETWORKS.target(self.network) is not None
        network = {"network": self.network} if is_custom else {}
        return {"activation": str(self.activation), **network}

    def architecture(self, observation: Space) -> Architecture:
        """Returns the architecture of the networks for this observation space."""
        from border_cli.core.spaces import without_mask  # imported late: imports numpy
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
