"""Base class of agents that learn: state, snapshots, statistics, schedules.

The file of each agent contains its losses and the order of its gradient steps. Formulas are pure
functions of arrays of any precision, so that tests can compare them with other implementations in
float64.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from border_cli.agent.action_space import action_bounds
from border_cli.agent.backend_choice import make_backend
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.normalization import Normalization
from border_cli.agent.saved_state import SavedState
from border_cli.core.interfaces import Agent
from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec, has_masks, split_mask
from border_cli.core.state import first_not_finite
from border_cli.core.types import Batch, Column, Snapshot, Transitions, Update
from border_cli.nn.adam_form import ADAM_EPSILON
from border_cli.nn.arrays import AnyTensor
from border_cli.nn.backend import Backend, Optimizer, Part
from border_cli.nn.batch import TensorBatch, empty_batch
from border_cli.nn.numpy_network import ActingNetwork, MakeActing, MakeEncoder, NumpyNetwork
from border_cli.settings.schedule import Schedule, schedule_of

log = logging.getLogger(__name__)


def gradient_step(
    optimizer: Any, loss: AnyTensor, loss_name: str, norm_name: str
) -> dict[str, AnyTensor]:
    """Performs a gradient step. Returns the loss, and the gradient norm if it is clipped.

    `optimizer` is a `TensorOptimizer`.
    """
    norm = optimizer.minimize(loss)
    return {loss_name: loss.detach(), **norm_metric(norm, norm_name)}


def norm_metric(norm: AnyTensor | None, name: str) -> dict[str, AnyTensor]:
    """Returns the gradient norm as a metric, or no metric if `norm` is None (no clipping)."""
    return {} if norm is None else {name: norm}


class LearningAgent(Agent):
    """Owns the weights, optimizers, statistics and random number generators of an agent.

    In its constructor, a subclass registers the contents of its checkpoints (`register_state`) and
    the network used for acting (`acting_parts`). It implements `learn`. Called by the learner
    thread only.
    """

    name: ClassVar[str]  # name of the agent, as passed to `agent=…`
    targets: ClassVar[Mapping[str, str]] = {}  # maps target parts to the parts they copy
    config: LearnerConfig

    def __init__(self, config: LearnerConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        self.spec = spec
        self.architecture = config.architecture(spec.observation)
        self.init_generator = np.random.default_rng(seed)
        self.backend: Backend = make_backend(
            config,
            self.architecture,
            device=device,
            generator=self.init_generator,
            noise_seed=derived_seed(seed, 1),
        )
        self._normalization = Normalization(config, self.architecture, self.backend, env=spec.id)
        self.features = self._normalization.features
        bounds = action_bounds(spec.action)
        self._bounds: list[AnyTensor] | None = None  # middle and half
        if bounds is not None:
            self._bounds = [self.backend.tensor(array) for array in (bounds.middle, bounds.half)]
        self._augmented_images = tuple(self.architecture.images) if config.augment != "none" else ()
        if config.augment != "none" and not self._augmented_images:
            config.refuse(
                "augment",
                str(config.augment),
                "must be none: the observation has no image (uint8 or bool) for a built-in network",
            )
        self._opt_steps = 0
        self._scheduled: list[tuple[Optimizer, Schedule]] = []
        statistics = self._normalization.statistics
        self._parts: dict[str, Part] = {}
        if statistics:
            self._parts["statistics"] = self._normalization
        self.observes = "obs" in statistics
        self._needs_preparation = self._bounds is not None or self._normalization.changes_batches
        # Contents of snapshots; subclasses add the `network`.
        self.acting_parts: dict[str, Any] = {"features": self.features}
        self._has_masks = has_masks(spec.observation)

    def register_state(self, **parts: Part) -> None:
        """Registers modules and optimizers that are saved in checkpoints."""
        self._parts |= parts
        for part in parts.values():
            if isinstance(part, Optimizer) and isinstance(part.learning_rate, Schedule):
                self._scheduled.append((part, part.learning_rate))

    def weights(self) -> dict[str, Any]:
        """Returns the arrays that `load_weights` restores, without copying them on the CPU."""
        return {
            name: self.backend.to_arrays(part.state_dict())
            for name, part in self._parts.items()
            if not isinstance(part, Optimizer) and name not in self.targets
        }

    @property
    def num_parameters(self) -> int:
        """Number of weights and of values in buffers, without target networks."""
        parts = self.weights()
        parts.pop("statistics", None)
        return sum(array.size for arrays in parts.values() for array in arrays.values())

    def make_optimizer(
        self,
        network: Part | Sequence[Part],
        learning_rate: float | Mapping[str, Any],
        max_grad_norm: float | None,
        *,
        epsilon: float = ADAM_EPSILON,
    ) -> Any:
        """Builds the optimizer of all weights of one or several networks, with optional clipping
        of the gradient's norm."""
        return self.backend.make_optimizer(
            network if isinstance(network, Sequence) else [network],
            learning_rate=schedule_of(learning_rate),
            max_grad_norm=max_grad_norm,
            epsilon=epsilon,
        )

    def acting_network(self, twin: type[ActingNetwork] = NumpyNetwork, **form: Any) -> MakeActing:
        """Returns a factory of the actors' network; its class `twin` runs dense layers in numpy."""
        encoder: MakeEncoder | None = None
        if self.architecture.acts_in_torch:
            from border_cli.nn.torch_encoder import TorchEncoder  # imported late: rarely used

            normalize = "obs" in self._normalization.statistics
            encoder = partial(TorchEncoder, self.architecture, normalize=normalize)
        return partial(twin, self.architecture, encoder, **form)

    @property
    def batch_columns(self) -> Sequence[Column]:
        """Additional columns of a batch."""
        return self.extras(self.config, self.spec)

    @property
    def update_period(self) -> int:
        """Number of consecutive updates in which every compiled function runs."""
        return 1

    @abstractmethod
    def learn(self, batch: TensorBatch) -> Update | None:
        """Performs one update, already counted in `opt_steps`. Returns None if it is skipped.

        Except in PPO, observations are features, rewards are normalised if configured, and actions
        of a bounded Box are scaled to [-1, 1], to which densities, entropies and noise refer;
        policies scale actions back.
        """

    def update(self, batch: Batch) -> Update | None:
        for optimizer, learning_rate in self._scheduled:
            optimizer.set_learning_rate(learning_rate.at(self._opt_steps))
        self._opt_steps += 1
        tensors = self.backend.convert(batch)
        update = self.learn(self._prepare(tensors) if self._needs_preparation else tensors)
        if update is None:
            self._opt_steps -= 1
        return update

    def _prepare(self, batch: TensorBatch) -> TensorBatch:
        if self._normalization.changes_batches:
            batch = self._normalization(batch)
        if self._augmented_images:
            from border_cli.agent.augmentation import shift_batch  # imported late: needs torch

            batch = shift_batch(batch, self._augmented_images, self.backend.noise)
        if self._bounds is not None:
            middle, half = self._bounds
            action = batch.action.reshape(len(batch.action), -1)
            batch = batch._replace(action=(action - middle) / half)
        return batch

    def observe(self, transitions: Transitions) -> None:
        if self._has_masks:
            transitions = replace(transitions, obs=split_mask(transitions.obs)[0])
        self._normalization.update_obs(transitions)

    def observe_returns(self, returns: Moments) -> None:
        self._normalization.update_returns(returns)

    @property
    def opt_steps(self) -> int:
        return self._opt_steps

    @property
    def device(self) -> Any:
        """Device of the networks: a torch.device, or "cpu" in numpy."""
        return self.backend.device

    @property
    def device_name(self) -> str:
        """Name of the device on which updates run: cpu, cuda or cuda:1."""
        return str(self.backend.device)

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        with self.backend.learner_thread():
            if self.config.compile:  # compile now instead of during the first updates
                state = self.state_dict()
                for _ in range(self.update_period):
                    size = self.config.batch_size
                    self.update(empty_batch(self.spec, size, self.batch_columns))
                self.load_state_dict(state)
            yield

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        arrays = {}
        for part_name, part in self.acting_parts.items():
            for name, array in self.backend.to_arrays(part.state_dict()).items():
                arrays[f"{part_name}.{name}"] = copy = array.copy("K")
                copy.setflags(write=False)
        return Snapshot(
            opt_steps=self._opt_steps, env_steps=env_steps, warm_up=warm_up, arrays=arrays
        )

    def _collect_state(self) -> dict[str, Any]:
        """Returns the state that updates change, without copying it on the CPU."""
        return {
            name: self.backend.to_arrays(part.state_dict()) for name, part in self._parts.items()
        }

    def first_not_finite(self) -> str | None:
        return first_not_finite(self._collect_state())

    def state_dict(self) -> dict[str, Any]:
        return {
            **deepcopy(self._collect_state()),
            "backend": self.backend.name,
            "noise": self.backend.noise_state(),
            "opt_steps": self._opt_steps,
            **self.config.semantic_settings,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = self._wrap_state(state, "the saved state")
        for name, part in self._parts.items():
            saved.load(part, name)
        if state["backend"] == self.backend.name:
            self.backend.load_noise_state(state["noise"])
        else:
            log.warning(
                "the saved state was computed by agent.backend=%s and continues with %s: results "
                "differ from those of an undivided run in the last bits",
                state["backend"],
                self.backend.name,
            )
        self._opt_steps = int(state["opt_steps"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        saved = self._wrap_state(state, "the saved agent")
        for name, part in self._parts.items():
            if not isinstance(part, Optimizer):
                # Targets start as copies, as in the constructor, because a saved target lags behind
                # and the new run counts its target intervals from 0.
                saved.load_weights(part, self.targets.get(name, name))

    def _wrap_state(self, state: Mapping[str, Any], title: str) -> SavedState:
        saved = SavedState(state, title, self.name, self.config, self.backend.load)
        saved.check_compatible(self._normalization.statistics.keys())
        return saved
