"""What every agent that learns with torch has, so that its own file holds its algorithm alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from border_cli.agent.action_space import action_bounds
from border_cli.agent.learner_config import LearnerConfig
from border_cli.agent.normalising import Normalising
from border_cli.agent.saved_state import ENCODING, Part, SavedState, encoding_of
from border_cli.core.interfaces import Agent
from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Snapshot, Transitions, Update
from border_cli.nn.compile import Compiled
from border_cli.nn.device import learner_thread, resolve_device
from border_cli.nn.optimizer import Adam
from border_cli.nn.saving import copied_arrays, copied_state, first_not_finite
from border_cli.nn.tensor_batch import TensorBatch, TensorBatches, empty_batch

P = ParamSpec("P")
R = TypeVar("R")


def norm_metric(norm: Tensor | None, name: str) -> dict[str, Tensor]:
    """The gradient's norm, where it is clipped and so was computed."""
    return {} if norm is None else {name: norm}


class TorchAgent(Agent):
    """Owns the weights, what follows from them, and the generators that draw for them.

    A subclass names in its constructor what a checkpoint holds (`keeps`) and what acting needs
    (`acts_with`), and learns in `learn`. The learner's thread calls everything.
    """

    name: ClassVar[str]  # as `agent=…` has it
    targets: ClassVar[Mapping[str, str]] = {}  # part: the part that it follows

    def __init__(self, config: LearnerConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self._settings = config
        self._spec = spec
        self._device = resolve_device(device)
        self.architecture = config.architecture(spec.observation)
        self._normalising = Normalising(config, self.architecture, self._device, env=spec.id)
        self.features = self._normalising.features
        # Both draw on the CPU, so that a seed means the same on every device.
        self.first_weights = torch.Generator().manual_seed(seed)
        self.noise = torch.Generator().manual_seed(derived_seed(seed, 1))
        self._bounds = self._tensor_bounds()
        self._opt_steps = 0
        self._parts: dict[str, Part] = {}
        self._keep_statistics()
        self._acting = nn.ModuleDict({"features": self.features})
        self._batches = TensorBatches(self._device, apart=config.compile)

    def keeps(self, **parts: Part) -> None:
        """Names what a checkpoint holds: modules and optimisers."""
        self._parts |= parts

    def _keep_statistics(self) -> None:
        statistics = self._normalising.part
        if statistics is not None:
            self.keeps(statistics=statistics)

    def acts_with(self, **modules: nn.Module) -> None:
        """Names what snapshots hold, beside how observations are normalised."""
        self._acting.update(modules)

    def compiled(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, by torch.compile where `agent.compile` asks for it."""
        return Compiled(function, self._device) if self._settings.compile else function

    def descend(
        self, optimizer: Adam, loss: Tensor, loss_name: str, norm_name: str
    ) -> dict[str, Tensor]:
        """One step; the loss and, where it is clipped, the gradient's norm, under these names."""
        norm = optimizer.descend(loss)
        return {loss_name: loss.detach(), **norm_metric(norm, norm_name)}

    @property
    def different_updates(self) -> int:
        """After how many updates all that an update may do was done once."""
        return 1

    def normal(self, *shape: int) -> Tensor:
        """Standard normal noise, from the generator that a checkpoint holds."""
        return torch.randn(shape, generator=self.noise).to(self._device)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform noise between 0 and 1, from the generator that a checkpoint holds."""
        return torch.rand(shape, generator=self.noise).to(self._device)

    @abstractmethod
    def learn(self, batch: TensorBatch) -> Update:
        """One optimisation step; `opt_steps` counts it already.

        Observations are features, rewards normalised where the settings ask for it, and actions of
        a bounded Box lie between -1 and 1.
        """

    def update(self, batch: Batch) -> Update:
        self._opt_steps += 1
        return self.learn(self._prepared(self._batches.of(batch)))

    def _prepared(self, batch: TensorBatch) -> TensorBatch:
        batch = self._normalising(batch)
        if self._bounds is not None:
            middle, half = self._bounds
            batch = batch._replace(action=(batch.action.flatten(1) - middle) / half)
        return batch

    def _tensor_bounds(self) -> tuple[Tensor, Tensor] | None:
        bounds = action_bounds(self._spec.action)
        if bounds is None:
            return None
        middle, half = torch.from_numpy(bounds.middle), torch.from_numpy(bounds.half)
        return middle.to(self._device), half.to(self._device)

    def observe(self, transitions: Transitions) -> None:
        self._normalising.see(transitions)

    def observe_returns(self, returns: Moments) -> None:
        self._normalising.see_returns(returns)

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

    @property
    def num_threads(self) -> int:
        return self._settings.num_threads or 1

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        settings = self._settings
        with learner_thread(self.num_threads, settings.matmul_precision):
            if settings.compile:  # now, not within the first update
                before = self.state_dict()
                for _ in range(self.different_updates):
                    self.update(empty_batch(self._spec, settings.batch_size))
                self.load_state_dict(before)
            yield

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        return Snapshot(
            opt_steps=self._opt_steps,
            env_steps=env_steps,
            warm_up=warm_up,
            arrays=copied_arrays(self._acting),
        )

    def _tensors(self) -> dict[str, Any]:
        """All that updates change, itself and not copies."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def first_not_finite(self) -> str | None:
        return first_not_finite(self._tensors())

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = copied_state(self._tensors())
        state |= {"noise": self.noise.get_state(), "opt_steps": self._opt_steps}
        state[ENCODING] = encoding_of(self._spec.observation)
        return {**state, **self._settings.semantic_settings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        saved = self._saved(state, "the saved state")
        for name, part in self._parts.items():
            saved.load(part, name)
        noise, opt_steps = saved.entry("noise"), saved.entry("opt_steps")
        with saved.fitting("the random generator and the number of updates"):
            self.noise.set_state(noise)
            self._opt_steps = int(opt_steps)
        self._normalising.follow()

    def load_weights(self, state: Mapping[str, Any]) -> None:
        saved = self._saved(state, "the saved agent")
        for name, part in self._parts.items():
            if isinstance(part, nn.Module):
                # As in the constructor, targets begin equal to what they follow: a saved one
                # lags behind, and the new run counts its intervals from 0.
                saved.load_weights(part, self.targets.get(name, name))
        self._normalising.follow()

    def _saved(self, state: Mapping[str, Any], title: str) -> SavedState:
        saved = SavedState(state, title, self.name, self._settings, self._spec.observation)
        saved.refuse_other_form(self._normalising.statistics.keys())
        self._normalising.divide_as(saved.statistics, title)
        self._keep_statistics()
        return saved
