"""The interface between agents and the library that computes their updates: numpy or torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, ParamSpec, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from border_cli.core.types import Array, Batch
from border_cli.nn.arrays import AnyTensor
from border_cli.nn.batch import TensorBatch, TensorObs, wrap_obs
from border_cli.settings.schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")

# Overwrites initial weights, given by their names in the saved state.
Initialise: TypeAlias = Callable[[Mapping[str, NDArray[np.float32]]], None]


class Part(Protocol):
    """A part of an agent that is saved in checkpoints: networks, statistics or an optimizer."""

    def state_dict(self) -> Any:
        """Returns the state, by name, without copying it."""

    def load_state_dict(self, state: Any) -> object:
        """Restores the state returned by `state_dict`."""


class LearnedNetwork(Part, Protocol):
    """A network that backpropagates a gradient with respect to its outputs."""

    def predict(self, *inputs: Any) -> AnyTensor:
        """Returns the outputs without gradients. [B, …] -> [B, outputs]"""

    def forward_with_cache(self, *inputs: Any) -> tuple[AnyTensor, Any]:
        """Returns the outputs, detached, and the cache of this forward pass for `backward`."""

    def backward(self, cache: Any, grad_output: AnyTensor) -> tuple[AnyTensor, ...]:
        """Returns the gradient with respect to all trainable parameters, valid until the next
        call. May overwrite `grad_output`."""

    def make_target(self) -> Self:
        """Returns a copy without gradients: a target network."""

    def move_towards(self, online: Self, tau: float) -> None:
        """Sets all parameters to tau online + (1 - tau) times themselves; copies if tau is 1.

        Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
        """


class DenseLearnedNetwork(LearnedNetwork, Protocol):
    """A network that ends in dense layers."""

    def forward_with_hidden(self, *inputs: Any) -> tuple[AnyTensor, AnyTensor, Any]:
        """Returns the outputs and the last hidden layer, detached, and the cache for `backward`.
        [B, …] -> [B, outputs], [B, H]"""


class FeatureEncoder(Protocol):
    """An encoder of observations as inputs of networks."""

    changes_nothing: bool

    def __call__(self, obs: TensorObs) -> TensorObs:
        """Returns the features of observations. [B, …]"""

    def state_dict(self) -> Any:
        """Returns the arrays that actors need, by name."""

    def refresh(self, mean: NDArray[Any], std: NDArray[Any]) -> None:
        """Replaces the mean and standard deviation used for normalisation. [row_size]"""


class Optimizer(ABC):
    """Updates the parameters of networks; owned by the learner's thread."""

    learning_rate: float | Schedule  # value of the setting

    @abstractmethod
    def step(self, gradient: tuple[AnyTensor, ...]) -> AnyTensor | None:
        """Takes one step along `gradient`, one array per parameter; clipping overwrites it.

        Returns the norm before clipping, or None if clipping is disabled.
        """

    @abstractmethod
    def set_learning_rate(self, value: float) -> None:
        """Sets the learning rate of the following steps."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """Returns the state itself, not a copy."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state_dict`."""


class Backend(ABC):
    """The library that runs the networks of one agent; owned by the learner's thread."""

    name: ClassVar[str]  # value of agent.backend
    device: Any  # a torch.device, or "cpu" in numpy
    reason: str  # why this backend was chosen
    # Noise from a saved generator; no agent in numpy needs any.
    noise: Any
    normal: Callable[..., AnyTensor]  # shape -> standard normal numbers
    uniform: Callable[..., AnyTensor]  # shape -> numbers in [0, 1)

    @abstractmethod
    def make_features(self, *, normalize: bool) -> FeatureEncoder:
        """Builds the encoder of observations."""

    @abstractmethod
    def make_network(
        self, outputs: int, initialise: Initialise | None = None
    ) -> DenseLearnedNetwork:
        """Builds a network of the agent's architecture. `initialise` may replace its weights."""

    @abstractmethod
    def make_value_network(
        self, num_actions: int, *, atoms: int, dueling: bool, noisy_std: float | None
    ) -> LearnedNetwork:
        """Builds a dueling or noisy network of action values."""

    @abstractmethod
    def make_parameter(self, name: str, value: NDArray[np.float32]) -> Part:
        """Builds a parameter outside of networks."""

    @abstractmethod
    def make_optimizer(
        self,
        networks: Sequence[Part],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None,
        epsilon: float,
    ) -> Optimizer:
        """Builds the optimizer of the settings for the weights of these networks, in this order."""

    @abstractmethod
    def convert(self, batch: Batch) -> TensorBatch:
        """Returns a batch in this library's arrays, valid until the next one."""

    def tensor_obs(self, obs: Array) -> TensorObs:
        """Returns observations in this library's arrays."""
        return wrap_obs(obs, self.tensor)

    @abstractmethod
    def tensor(self, array: NDArray[Any]) -> AnyTensor:
        """Returns this library's array with the same values, on the device."""

    @abstractmethod
    def to_arrays(self, state: Any) -> Any:
        """Returns a state with numpy arrays in place of tensors; copies only from a GPU."""

    @abstractmethod
    def load(self, part: Part, state: Any) -> None:
        """Restores a part from a state returned by `to_arrays`."""

    @abstractmethod
    def learner_thread(self) -> AbstractContextManager[None]:
        """Configures the calling thread for updates, for the duration of a `with` block."""

    def describe(self) -> list[tuple[str, str]]:
        """Returns header lines that describe the backend."""
        return [("backend", f"{self.name} ({self.reason})")]

    def noise_state(self) -> Any:
        """Returns the state of the generator of noise, None without one."""
        return None

    def load_noise_state(self, state: Any) -> None:  # noqa: B027 - without noise there is no state
        """Restores what `noise_state` returned."""

    def compile(self, function: Callable[P, R]) -> Callable[P, R]:
        """Compiles the function if `agent.compile` is set, and otherwise returns it unchanged."""
        return function
