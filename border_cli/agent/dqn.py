"""Deep Q-network.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
Deviations: Adam instead of RMSProp, and a soft update of the target network where `tau` is below 1
(Lillicrap et al. 2016, "Continuous control with deep reinforcement learning").
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's users call it
from torch import Tensor

from border_cli.agent.action_space import num_discrete_actions
from border_cli.agent.config import DqnConfig, Loss
from border_cli.agent.q_policy import QPolicy
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Agent, PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Batch, Snapshot, Update
from border_cli.nn.adam import Adam
from border_cli.nn.device import learner_thread, resolve_device
from border_cli.nn.q_network import QNetwork
from border_cli.nn.saving import copied_arrays, copied_state
from border_cli.nn.tensor_batch import TensorBatch, to_tensors


def td_error(
    q: QNetwork, q_target: QNetwork, batch: TensorBatch, *, double: bool
) -> tuple[Tensor, Tensor]:
    """y - Q(s, a), and Q(s, a), for every row. [B], [B], with gradient through Q(s, a) only.

    y = r + d max_a' Q_target(s', a'), where d is already 0 at the end of an episode;
    double: y = r + d Q_target(s', argmax_a' Q(s', a')).
    """
    q_sa = q(batch.obs).gather(1, batch.action[:, None]).squeeze(1)  # [B]
    with torch.no_grad():
        q_next = q_target(batch.next_obs)  # [B, num_actions]
        chooser = q(batch.next_obs) if double else q_next
        best = chooser.argmax(dim=1, keepdim=True)  # [B, 1]
        y = batch.reward + batch.discount * q_next.gather(1, best).squeeze(1)  # [B]
    return y - q_sa, q_sa


def weighted_loss(error: Tensor, weight: Tensor, kind: Loss) -> Tensor:
    """Mean of weight * loss(error). []

    The weight stands outside the loss, so that it is not squared with the error.
    """
    if kind == Loss.huber:
        loss = F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=1.0)
    else:
        loss = error.square()
    return (weight * loss).mean()


class Dqn(Agent):
    """Q-learning with a target network that follows every `target_interval` optimisation steps."""

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.config = config
        self._observation = spec.observation
        self._num_actions = num_discrete_actions(spec, "dqn")
        self._device = resolve_device(device)
        # Drawn on the CPU, so that a seed means the same weights on every device.
        network = QNetwork(self._observation, config.hidden, self._num_actions, seed)
        self._q = network.to(self._device)
        self._q_target = copy.deepcopy(self._q).requires_grad_(False)
        self._weights = tuple(self._q.parameters())
        self._target_weights = tuple(self._q_target.parameters())
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

    def learner_thread(self) -> AbstractContextManager[None]:
        return learner_thread()

    @property
    def policy_factory(self) -> PolicyFactory:
        return partial(
            QPolicy,
            self.config,
            observation=self._observation,
            num_actions=self._num_actions,
        )

    def update(self, batch: Batch) -> Update:
        b = to_tensors(batch, self._device)
        error, q_sa = td_error(self._q, self._q_target, b, double=self.config.double)
        loss = weighted_loss(error, b.weight, self.config.loss)
        norm = self._optimizer.step(torch.autograd.grad(loss, self._weights))

        self._opt_steps += 1
        if self._opt_steps % self.config.target_interval == 0:
            self._update_target()

        error = error.detach()
        metrics = {"loss": loss.detach(), "q_mean": q_sa.detach().mean()}
        if norm is not None:
            metrics["grad_norm"] = norm
        return Update(metrics=metrics, td_error=lambda: error.cpu().numpy())

    @torch.no_grad()
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

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = copied_state(
            {
                "online": self._q.state_dict(),
                "target": self._q_target.state_dict(),
                "optimizer": self._optimizer.state_dict(),
            }
        )
        return {**state, "opt_steps": self._opt_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self._q.load_state_dict(state["online"])
            self._q_target.load_state_dict(state["target"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._opt_steps = int(state["opt_steps"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"the saved state does not fit agent=dqn with agent.hidden={self.config.hidden}: "
                f"{' '.join(str(error).split())}"
            ) from error
