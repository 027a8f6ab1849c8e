"""Updates in numpy, for dense networks on a CPU. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.learner_config import LearnerConfig
from border_cli.core.types import Batch
from border_cli.nn.adam_form import adam_form
from border_cli.nn.architecture import Architecture
from border_cli.nn.backend import (
    Backend,
    FeatureEncoder,
    Initialise,
    LearnedNetwork,
    Part,
)
from border_cli.nn.batch import TensorBatch, TensorObs, as_columns
from border_cli.nn.encoding import encoder, is_vector, measured_columns
from border_cli.nn.numpy_adam import NumpyAdam
from border_cli.nn.numpy_learner import DenseNetwork, DuelingNetwork, Parameters
from border_cli.nn.numpy_network import add_normalization
from border_cli.settings.schedule import Schedule
from border_cli.system.processor import flushing_denormals, keep_freed_memory


class NumpyFeatures:
    """Encodes observations as rows; `normalize` gives real numbers mean 0 and deviation 1."""

    def __init__(self, architecture: Architecture, *, normalize: bool) -> None:
        space, size = architecture.rows, architecture.row_size
        assert space is not None
        encode = None if is_vector(space) else encoder(space)
        self.changes_nothing = encode is None and not normalize
        self._measured = measured_columns(space)  # [row_size] bool
        self._arrays: dict[str, NDArray[np.float32]] = {}
        if normalize:
            self._arrays = {"mean": np.zeros(size, np.float32)}
            self._arrays["inverse_std"] = np.ones(size, np.float32)
            encode = add_normalization(encode, **self._arrays)
        self._encode = encode

    def __call__(self, obs: TensorObs) -> TensorObs:
        return obs if self._encode is None else self._encode(obs)

    def refresh(self, mean: NDArray[Any], std: NDArray[Any]) -> None:
        """Replaces the mean and standard deviation used for normalisation. [row_size]"""
        self._arrays["mean"][:] = np.where(self._measured, mean, 0)
        self._arrays["inverse_std"][:] = np.where(self._measured, 1 / std, 1)

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Returns the arrays that actors need, if there are any."""
        return self._arrays


class NumpyBackend(Backend):
    """Runs dense networks on one thread of a CPU."""

    name = "numpy"
    device = "cpu"

    def __init__(
        self,
        config: LearnerConfig,
        architecture: Architecture,
        *,
        generator: np.random.Generator,
        reason: str,
    ) -> None:
        """`generator` draws initial weights; `reason` explains the choice of this backend."""
        self._config, self._architecture, self._generator = config, architecture, generator
        self.reason = reason
        self._batch: Batch | None = None  # source of the newest converted batch

    def make_features(self, *, normalize: bool) -> FeatureEncoder:
        return NumpyFeatures(self._architecture, normalize=normalize)

    def make_network(self, outputs: int, initialise: Initialise | None = None) -> DenseNetwork:
        network = DenseNetwork(self._architecture, outputs, self._generator)
        if initialise is not None:
            initialise(network.state_dict())
        return network

    def make_value_network(
        self, num_actions: int, *, atoms: int, dueling: bool, noisy_std: float | None
    ) -> LearnedNetwork:
        assert dueling, "other networks are built by `make_network`"
        assert noisy_std is None, "noisy networks need torch"
        return DuelingNetwork(self._architecture, num_actions, self._generator, atoms=atoms)

    def make_parameter(self, name: str, value: NDArray[np.float32]) -> Parameters:
        parameter = Parameters({name: value.shape})
        parameter.load_state_dict({name: value})
        return parameter

    def make_optimizer(
        self,
        networks: Sequence[Any],
        *,
        learning_rate: float | Schedule,
        max_grad_norm: float | None,
        epsilon: float,
    ) -> NumpyAdam:
        form = adam_form(self._config.optimizer, self._config.optimizer_kwargs, epsilon)
        assert form is not None, "other optimizers need torch"
        return NumpyAdam(
            networks, learning_rate=learning_rate, max_grad_norm=max_grad_norm, form=form
        )

    def convert(self, batch: Batch) -> TensorBatch:
        if batch is not self._batch:  # a replay buffer returns the same arrays again
            self._converted, self._batch = as_columns(batch, np.asarray), batch
        return self._converted

    def tensor(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def to_arrays(self, state: Any) -> Any:
        return state

    def load(self, part: Part, state: Any) -> None:
        part.load_state_dict(state)

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        keep_freed_memory()
        # Weights that diverge are reported by the trainer, as in torch.
        with flushing_denormals(), np.errstate(over="ignore", invalid="ignore"):
            yield
