"""Deep Q-network (DQN) with the extensions combined in Rainbow.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`dueling`: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning".
`num_atoms`: Bellemare et al. 2017, "A distributional perspective on reinforcement learning" (C51).
`noisy`: Fortunato et al. 2018, "Noisy networks for exploration".
Combination: Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning".
`conservative_weight`: Kumar et al. 2020, "Conservative Q-learning for offline reinforcement
learning".
Deviations: Adam replaces RMSProp, with an epsilon of 1e-8 (`adam_epsilon`); C51 uses 0.01 / 32, and
Rainbow and conf/agent/rainbow.yaml use 1.5e-4. The gradient norm is always clipped at 10
(`max_grad_norm`), as Wang et al. do for dueling networks. Rewards are clipped by env=atari only.
The target network is a Polyak average (Lillicrap et al. 2016, "Continuous control with deep
reinforcement learning"), and the online network chooses the next action. Mnih et al. copy the
weights every 10,000 updates and choose with the target network (`tau=1 target_interval=10000
double=false`). Gradients from the dueling streams into the shared layers are not scaled by
2**-0.5. The CQL term is added to DQN; its authors add it to QR-DQN. The defaults of learning rate,
batch size and exploration suit small problems (docs/agents/differences.md).
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from border_cli.agent import c51, discrete_cql
from border_cli.agent.action_space import discrete_actions
from border_cli.agent.config import DqnConfig, Loss, ValueConfig
from border_cli.agent.learning_agent import LearningAgent, norm_metric
from border_cli.agent.policies import q_policy
from border_cli.agent.support_check import SupportCheck
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.arrays import AnyTensor, argmax, mask_invalid, scatter, take
from border_cli.nn.backend import LearnedNetwork
from border_cli.nn.batch import TDLoss, TDResult, TensorBatch
from border_cli.nn.numpy_network import NumpyValueNetwork

DIAGNOSTICS_INTERVAL = 100  # updates

Noises: TypeAlias = tuple[tuple[AnyTensor, ...], ...]  # extra inputs of each forward pass


def td_target(batch: TensorBatch, q_next: AnyTensor, q_next_online: AnyTensor | None) -> AnyTensor:
    """Returns the targets y of Q(s, a). [B, 1]

    y = r + d max_a' Q_target(s', a'), where d is 0 if s' is terminal. In double Q-learning the
    online network chooses a'. q_next, q_next_online: Q(s', ·) of target and online network,
    [B, num_actions].
    """
    ranking = q_next if q_next_online is None else q_next_online
    best = argmax(mask_invalid(ranking, batch.next_mask))  # [B, 1]
    return batch.reward + batch.discount * take(q_next, best)


def weighted_loss(error: AnyTensor, weight: AnyTensor, kind: Loss) -> tuple[AnyTensor, AnyTensor]:
    """Returns the mean of weight * loss(error), and its gradient w.r.t. the errors. [], [B, 1]

    The loss is e² for mse; for huber it is ½ e² up to |e| = 1 and |e| - ½ beyond. The weight
    multiplies the loss, not the error.
    """
    row_weight = weight / len(error)  # [B, 1]
    if kind == Loss.mse:
        grad_error = row_weight * error * 2
        return (grad_error * error).sum() / 2, grad_error
    bounded = error.clip(-1, 1)
    grad_error = row_weight * bounded
    return (grad_error * (error - 0.5 * bounded)).sum(), grad_error


def td_loss(
    q: AnyTensor,
    q_next: AnyTensor,
    q_next_online: AnyTensor | None,
    batch: TensorBatch,
    *,
    loss: Loss,
) -> TDResult:
    """Returns the loss of Q(s, a) - y, given Q(s, ·) and Q(s', ·). [B, num_actions] each"""
    q_sa = take(q, batch.action)  # [B, 1]
    error = q_sa - td_target(batch, q_next, q_next_online)  # [B, 1]
    mean_loss, grad_error = weighted_loss(error, batch.weight, loss)
    grad_output = scatter(grad_error, batch.action, q)  # [B, num_actions]
    return TDResult(grad_output, -error, {"loss": mean_loss, "q_mean": q_sa.mean()})


class ValueAgent(LearningAgent):
    """Base of agents that learn Q by gradient steps on a TD loss.

    Owns Q, Q_target and the optimizer. A TD loss returns its gradient with respect to the outputs,
    and the network's `backward` propagates it to the weights. Subclasses implement `network`, and
    either set `td_loss` or override `td`. Called by the learner thread only.
    """

    targets = {"target": "online"}  # noqa: RUF012 - read-only, and a ClassVar in the base
    config: ValueConfig
    td_loss: TDLoss

    def __init__(self, config: ValueConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.actions = discrete_actions(spec, self.name, config.max_joint_actions)
        self.num_actions = self.actions.n
        super().__init__(config, spec=spec, device=device, seed=seed)
        self._strides = self.backend.tensor(np.array(self.actions.strides))  # [K]
        self.online = self.network()
        self.target = self.online.make_target()
        self.optimizer = self.make_optimizer(
            self.online, config.learning_rate, config.max_grad_norm, epsilon=config.adam_epsilon
        )
        self.register_state(online=self.online, target=self.target, optimizer=self.optimizer)
        self.acting_parts["network"] = self.online
        self._td = self.backend.compile(self.td)

    @abstractmethod
    def network(self) -> LearnedNetwork:
        """Builds the Q-network on the device."""

    def learn(self, batch: TensorBatch) -> Update:
        """Performs a gradient step on the TD loss and updates the target network (Algorithm 1)."""
        if self.actions.joint is not None:
            batch = self.to_joint_actions(batch)
        cache, result = self._td(batch, self.draw_noise(batch))
        grad_norm = self.optimizer.step(self.online.backward(cache, result.grad_output))
        if self.opt_steps % self.config.target_interval == 0:
            self.target.move_towards(self.online, self.config.tau)
        metrics = result.metrics | norm_metric(grad_norm, "grad_norm")
        if self.opt_steps % DIAGNOSTICS_INTERVAL == 0:
            metrics |= self.diagnostics(result, batch)
        td_error = result.td_error  # the lambda must not keep the whole result alive
        return Update(
            metrics=metrics, td_error=lambda: np.asarray(self.backend.to_arrays(td_error))[:, 0]
        )

    def to_joint_actions(self, batch: TensorBatch) -> TensorBatch:
        """Replaces actions by joint action numbers, and masks by masks of joint actions."""
        masks = (batch.mask, batch.next_mask)
        mask, next_mask = (
            None if part is None else self.actions.joint_mask(part) for part in masks
        )
        action = (batch.action * self._strides).sum(1)[:, None]  # [B, 1]
        return batch._replace(action=action, mask=mask, next_mask=next_mask)

    def td(self, batch: TensorBatch, noises: Noises) -> tuple[Any, TDResult]:
        """Returns the cache for the backward pass and the TD loss. Draws no random numbers."""
        outputs, cache = self.online.forward_with_cache(batch.obs, *noises[0])
        next_outputs = self.target.predict(batch.next_obs, *noises[1])
        next_outputs_online = None
        if self.config.double:
            next_outputs_online = self.online.predict(batch.next_obs, *noises[2])
        return cache, self.td_loss(outputs, next_outputs, next_outputs_online, batch)

    def draw_noise(self, batch: TensorBatch) -> Noises:  # noqa: ARG002
        """Draws the random numbers for the forward passes of `td`."""
        return ((), (), ())

    def diagnostics(self, result: TDResult, batch: TensorBatch) -> dict[str, AnyTensor]:  # noqa: ARG002
        """Returns metrics that take too long to compute in every update."""
        return {}


class Dqn(ValueAgent):
    """Q-learning with a target network; optionally dueling, noisy and distributional."""

    name: ClassVar[str] = "dqn"
    config: DqnConfig

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        atoms = None
        self.td_loss = partial(td_loss, loss=config.loss)
        if config.categorical:
            support = np.linspace(config.v_min, config.v_max, config.num_atoms, dtype=np.float32)
            atoms = self.backend.tensor(support)
            self.td_loss = partial(c51.td_loss, atoms=atoms)
            self._support = SupportCheck(config.v_min, config.v_max)
        if config.conservative_weight:
            self.td_loss = partial(
                discrete_cql.td_loss,
                td_loss=self.td_loss,
                weight=config.conservative_weight,
                atoms=atoms,
            )

    def network(self) -> LearnedNetwork:
        config = self.config
        if config.plain:
            return self.backend.make_network(self.num_actions * config.num_atoms)
        return self.backend.make_value_network(
            self.num_actions,
            atoms=config.num_atoms,
            dueling=config.dueling,
            noisy_std=config.noisy_std if config.noisy else None,
        )

    @property
    def policy_factory(self) -> PolicyFactory:
        config = self.config
        network = self.acting_network()
        if not config.plain:
            network = self.acting_network(NumpyValueNetwork, atoms=config.num_atoms)
        atoms = (config.v_min, config.v_max, config.num_atoms) if config.categorical else None
        return partial(
            q_policy(self.spec),
            config,
            network=network,
            actions=self.actions,
            atoms=atoms,
            noisy=config.noisy,
        )

    def draw_noise(self, batch: TensorBatch) -> Noises:
        if not self.config.noisy:
            return super().draw_noise(batch)
        network: Any = self.online  # a `ValueNetwork`, because noisy networks need torch
        return tuple((noise,) for noise in self.backend.normal(3, network.draws))

    def diagnostics(self, result: TDResult, batch: TensorBatch) -> dict[str, AnyTensor]:
        return {} if result.target is None else self._support.check(result.target, batch.discount)
