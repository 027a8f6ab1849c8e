"""The base of agents that learn with torch: state, snapshots, statistics, generators.

An agent's own file has its losses and the order of its steps. Formulas are pure functions on
tensors of any precision, which tests compare with other implementations in float64.
Encoders of actors in torch, and torch's compiler, are imported by the methods that use them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from border_cli.agent.action_space import action_bounds
from border_cli.agent.augmentation import shifted_batch
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.normalization import Normalization
from border_cli.agent.saved_state import Part, SavedState
from border_cli.core.interfaces import Agent
from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec, has_masks, split_mask
from border_cli.core.types import Batch, Column, Snapshot, Transitions, Update
from border_cli.nn.device import learner_thread, refuse_other_dtype, resolve_device
from border_cli.nn.numpy_network import ActingNetwork, MakeActing, MakeEncoder, NumpyNetwork
from border_cli.nn.optimizer import EPSILON, Optimizer, make_optimizer
from border_cli.nn.saving import copied_arrays, copied_state, first_not_finite
from border_cli.nn.tensor_batch import TensorBatch, TensorBatches, empty_batch
from border_cli.settings.schedule import Schedule, schedule_of

P = ParamSpec("P")
R = TypeVar("R")


def gradient_step(
    optimizer: Optimizer, loss: Tensor, loss_name: str, norm_name: str
) -> dict[str, Tensor]:
    """One step; the loss and, if it is clipped, the norm of the gradient, under these names."""
    norm = optimizer.minimize(loss)
    return {loss_name: loss.detach(), **norm_metric(norm, norm_name)}


def norm_metric(norm: Tensor | None, name: str) -> dict[str, Tensor]:
    """The norm of the gradient, which is known only if it is clipped."""
    return {} if norm is None else {name: norm}


class TorchAgent(Agent):
    """Owns the weights, the optimizers, the statistics, and the generators that draw for them.

    A subclass names in its constructor what a checkpoint holds (`register_state`) and the network
    that acts (`acting_modules`), and learns in `learn`. The learner's thread calls everything.
    """

    name: ClassVar[str]  # as `agent=…` has it
    targets: ClassVar[Mapping[str, str]] = {}  # target part: the part that it is a copy of
    config: LearnerConfig

    def __init__(self, config: LearnerConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        refuse_other_dtype()
        self.config = config
        self.spec = spec
        self._device = resolve_device(device)
        self.architecture = config.architecture(spec.observation)
        self._normalization = Normalization(config, self.architecture, self._device, env=spec.id)
        self.features = self._normalization.features
        # Both draw on the CPU, so that a seed means the same on every device.
        self.init_generator = torch.Generator().manual_seed(seed)
        self.noise_generator = torch.Generator().manual_seed(derived_seed(seed, 1))
        bounds = action_bounds(spec.action)
        self._bounds: list[Tensor] | None = None  # middle and half
        if bounds is not None:
            ranges = bounds.middle, bounds.half
            self._bounds = [torch.from_numpy(each).to(self._device) for each in ranges]
        self._augmented = tuple(self.architecture.images) if config.augment != "none" else ()
        if config.augment != "none" and not self._augmented:
            config.refuse(
                "augment",
                str(config.augment),
                "must be none: the observation has no image (uint8 or bool) that a network of ours "
                "takes",
            )
        self._opt_steps = 0
        self._scheduled: list[tuple[Optimizer, Schedule]] = []
        statistics = self._normalization.statistics
        self._parts: dict[str, Part] = {}
        if statistics:
            self._parts["statistics"] = nn.ModuleDict(statistics)
        self.observes = "obs" in statistics
        self._prepares = self._bounds is not None or self._normalization.changes_batches
        # What snapshots hold: `features`, then the `network` of the agent.
        self.acting_modules = nn.ModuleDict({"features": self.features})
        self._has_masks = has_masks(spec.observation)
        self._batches = TensorBatches(
            self._device, own_memory=config.compile, has_masks=self._has_masks
        )

    def register_state(self, **parts: Part) -> None:
        """Names what a checkpoint holds: modules and optimizers."""
        self._parts |= parts
        for part in parts.values():
            if isinstance(part, Optimizer) and isinstance(part.learning_rate, Schedule):
                self._scheduled.append((part, part.learning_rate))

    def learned_modules(self) -> dict[str, nn.Module]:
        """All that `load_weights` takes of another agent, by the names of its state."""
        return {
            name: part
            for name, part in self._parts.items()
            if isinstance(part, nn.Module) and name not in self.targets
        }

    def make_optimizer(
        self,
        network: nn.Module,
        learning_rate: float | Mapping[str, Any],
        max_grad_norm: float | None,
        *,
        epsilon: float = EPSILON,
    ) -> Optimizer:
        """An optimizer of all weights of a network, which clips the norm of its gradient."""
        return make_optimizer(
            self.config.optimizer,
            self.config.optimizer_kwargs,
            network.parameters(),
            learning_rate=schedule_of(learning_rate),
            max_grad_norm=max_grad_norm,
            epsilon=epsilon,
        )

    def acting_network(self, twin: type[ActingNetwork] = NumpyNetwork, **form: Any) -> MakeActing:
        """How actors compute a network: its dense layers by a twin in numpy, of this `form`."""
        encoder: MakeEncoder | None = None
        if self.architecture.acts_in_torch:
            from border_cli.nn.torch_encoder import TorchEncoder

            normalize = self.config.normalize_obs
            encoder = partial(TorchEncoder, self.architecture, normalize=normalize)
        return partial(twin, self.architecture, encoder, **form)

    def compiled(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, compiled by torch if `agent.compile` is set."""
        if not self.config.compile:
            return function
        from border_cli.nn.compile import Compiled

        return Compiled(function, self._device)

    @property
    def batch_columns(self) -> Sequence[Column]:
        """The columns of a batch beside those of all runs."""
        return self.extras(self.config, self.spec)

    @property
    def update_period(self) -> int:
        """After how many updates all that an update may do was done once."""
        return 1

    def normal(self, *shape: int) -> Tensor:
        """Standard normal noise, from the generator that a checkpoint holds."""
        return torch.randn(shape, generator=self.noise_generator).to(self._device)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform noise between 0 and 1, from the generator that a checkpoint holds."""
        return torch.rand(shape, generator=self.noise_generator).to(self._device)

    @abstractmethod
    def learn(self, batch: TensorBatch) -> Update | None:
        """One optimisation step; `opt_steps` counts it already. None: none was made.

        Observations are features, rewards normalised if configured, and actions of
        a bounded Box lie between -1 and 1: densities, entropies and noise are those of the unit
        box, and policies scale back.
        """

    def update(self, batch: Batch) -> Update | None:
        for optimizer, learning_rate in self._scheduled:
            optimizer.set_learning_rate(learning_rate.at(self._opt_steps))
        self._opt_steps += 1
        tensors = self._batches.of(batch)
        update = self.learn(self._prepared(tensors) if self._prepares else tensors)
        if update is None:
            self._opt_steps -= 1
        return update

    def _prepared(self, batch: TensorBatch) -> TensorBatch:
        if self._normalization.changes_batches:
            batch = self._normalization(batch)
        if self._augmented:
            batch = shifted_batch(batch, self._augmented, self.noise_generator)
        if self._bounds is not None:
            middle, half = self._bounds
            batch = batch._replace(action=(batch.action.flatten(1) - middle) / half)
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
    def device(self) -> torch.device:
        """Where the updates run."""
        return self._device

    @property
    def device_name(self) -> str:
        """Where the updates run: cpu, cuda or cuda:1."""
        return str(self._device)

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        with learner_thread(self.config.num_threads or 1, self.config.matmul_precision):
            if self.config.compile:  # now, not within the first update
                before = self.state_dict()
                for _ in range(self.update_period):
                    size = self.config.batch_size
                    self.update(empty_batch(self.spec, size, self.batch_columns))
                self.load_state_dict(before)
            yield

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        return Snapshot(
            opt_steps=self._opt_steps,
            env_steps=env_steps,
            warm_up=warm_up,
            arrays=copied_arrays(self.acting_modules),
        )

    def _tensors(self) -> dict[str, Any]:
        """All that updates change, itself and not copies."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def first_not_finite(self) -> str | None:
        return first_not_finite(self._tensors())

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = copied_state(self._tensors())
        state |= {"noise": self.noise_generator.get_state(), "opt_steps": self._opt_steps}
        return {**state, **self.config.semantic_settings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = self._saved(state, "the saved state")
        for name, part in self._parts.items():
            saved.load(part, name)
        self.noise_generator.set_state(state["noise"])
        self._opt_steps = int(state["opt_steps"])
        self._normalization.refresh()

    def load_weights(self, state: Mapping[str, Any]) -> None:
        saved = self._saved(state, "the saved agent")
        for name, part in self._parts.items():
            if isinstance(part, nn.Module):
                # As in the constructor, targets begin as copies: a saved target lags behind, and
                # the new run counts its intervals from 0.
                saved.load_weights(part, self.targets.get(name, name))
        self._normalization.refresh()

    def _saved(self, state: Mapping[str, Any], title: str) -> SavedState:
        saved = SavedState(state, title, self.name, self.config)
        saved.refuse_other_form(self._normalization.statistics.keys())
        return saved
