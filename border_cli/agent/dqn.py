"""Deep Q-network.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
Deviations: Adam instead of RMSProp, and a soft update of the target network where `tau` is below 1
(Lillicrap et al. 2016, "Continuous control with deep reinforcement learning").
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from border_cli.agent.action_space import num_discrete_actions
from border_cli.agent.config import DqnConfig
from border_cli.agent.q_learning import Descent, descent
from border_cli.agent.q_policy import QPolicy
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Agent, PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Snapshot, Update
from border_cli.nn.adam import Adam
from border_cli.nn.compile import Compiled
from border_cli.nn.device import learner_thread, resolve_device
from border_cli.nn.q_network import QNetwork
from border_cli.nn.saving import copied_arrays, copied_state, first_not_finite
from border_cli.nn.tensor_batch import TensorBatches, empty_batch


class Dqn(Agent):
    """Q-learning with a target network that follows every `target_interval` optimisation steps."""

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        self._spec = spec
        self._num_actions = num_discrete_actions(spec, "dqn")
        self._device = resolve_device(device)
        self._descent = Compiled(descent, self._device) if config.compile else descent
        self._batches = TensorBatches(self._device, apart=config.compile)
        # Drawn on the CPU, so that a seed means the same weights on every device.
        network = QNetwork(spec.observation, config.hidden, self._num_actions, seed)
        self._q = network.to(self._device)
        self._q_target = copy.deepcopy(self._q)
        self._encoder = self._q.encoder  # has no weights: one for both networks
        self._online, self._target = self._q.mlp.memory(), self._q_target.mlp.memory()
        self._weights = [each for layer in self._online for each in layer]
        self._target_weights = [each for layer in self._target for each in layer]
        self._optimizer = Adam(
            self._weights,
            learning_rate=config.learning_rate,
            max_grad_norm=config.max_grad_norm,
        )
        self._opt_steps = 0

    @property
    def opt_steps(self) -> int:
        return self._opt_steps

    @property
    def device_name(self) -> str:
        """Where the updates run: cpu, cuda or cuda:1."""
        return str(self._device)

    @contextmanager
    def learner_thread(self) -> Iterator[None]:
        config = self.config
        with learner_thread(config.num_threads, config.matmul_precision):
            if config.compile:  # now, not within the first update
                self._find(empty_batch(self._spec, config.batch_size))
            yield

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            QPolicy,
            self.config,
            observation=self._spec.observation,
            num_actions=self._num_actions,
        )

    def update(self, batch: Batch) -> Update:
        found = self._find(batch)
        norm = self._optimizer.step(found.gradient)
        self._opt_steps += 1
        if self._opt_steps % self.config.target_interval == 0:
            self._update_target()

        metrics = {"loss": found.loss, "q_mean": found.q_mean}
        if norm is not None:
            metrics["grad_norm"] = norm
        error = found.error  # the gradient need not live as long
        return Update(metrics=metrics, td_error=lambda: -error.squeeze(1).cpu().numpy())

    def _find(self, batch: Batch) -> Descent:
        found = self._descent(
            self._online,
            self._target,
            self._encoder,
            self._batches.of(batch),
            double=self.config.double,
            loss=self.config.loss,
        )
        if self.config.compile and self._device.type == "cuda":
            # A CUDA graph writes to the same memory again; all but the gradient is read later.
            loss, q_mean, error = (each.clone() for each in found[1:])
            found = Descent(found.gradient, loss, q_mean, error)
        return found

    def _update_target(self) -> None:
        """Q_target := tau Q + (1 - tau) Q_target."""
        if self.config.tau == 1:
            torch._foreach_copy_(self._target_weights, self._weights)
        else:
            torch._foreach_lerp_(self._target_weights, self._weights, self.config.tau)

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        return Snapshot(
            opt_steps=self._opt_steps,
            env_steps=env_steps,
            warm_up=warm_up,
            arrays=copied_arrays(self._q),
        )

    def _tensors(self) -> dict[str, Any]:
        """All that updates change, itself and not copies."""
        return {
            "online": self._q.state_dict(),
            "target": self._q_target.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def first_not_finite(self) -> str | None:
        return first_not_finite(self._tensors())

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = copied_state(self._tensors())
        return {**state, "opt_steps": self._opt_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with self._fitting("the saved state"):
            self._q.load_state_dict(state["online"])
            self._q_target.load_state_dict(state["target"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._opt_steps = int(state["opt_steps"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        with self._fitting("the network to begin with (init_from)"):
            self._q.load_state_dict(state["online"])
            # As in the constructor both networks begin equal. The saved target lags behind by up
            # to an interval, and the new run counts its intervals from 0.
            self._q_target.load_state_dict(state["online"])

    @contextmanager
    def _fitting(self, what: str) -> Iterator[None]:
        """Says what does not fit of a state that is being loaded."""
        try:
            yield
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"{what} does not fit agent=dqn with agent.hidden={self.config.hidden}: "
                f"{' '.join(str(error).split())}"
            ) from error
