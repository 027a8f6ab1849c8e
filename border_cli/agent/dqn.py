"""Deep Q-network, in all forms that Rainbow combines.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Algorithm 1.
`double`: van Hasselt, Guez and Silver 2016, "Deep reinforcement learning with double Q-learning".
`dueling`: Wang et al. 2016, "Dueling network architectures for deep reinforcement learning".
`num_atoms`: Bellemare et al. 2017, "A distributional perspective on reinforcement learning" (C51).
`noisy`: Fortunato et al. 2018, "Noisy networks for exploration".
All of them: Hessel et al. 2018, "Rainbow: combining improvements in deep reinforcement learning".
`conservative_weight`: Kumar et al. 2020, "Conservative Q-learning for offline reinforcement
learning".
Deviations: Adam instead of RMSProp, with an epsilon of 1e-8 where C51 has 0.01 / 32, and Rainbow
and conf/agent/rainbow.yaml 1.5e-4 (`adam_epsilon`). The gradient's norm is clipped at 10 in all
forms (`max_grad_norm`), which of the papers Wang et al. do for dueling. Rewards are not clipped
here, but by env=atari. The target network is a Polyak average (Lillicrap et al. 2016, "Continuous
control with deep reinforcement learning") and the online network chooses the next action; Mnih et
al. copy the target every 10,000 updates and let it choose (`tau=1 target_interval=10000
double=false`). There is no factor 2**-0.5 on the gradient that dueling streams send into the layers
they share. CQL's authors add its term to QR-DQN, here it is added to DQN. Learning rate, batch and
exploration are for small problems: docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from border_cli.agent import c51
from border_cli.agent.action_space import num_discrete_actions
from border_cli.agent.config import DqnConfig, Loss, ValueConfig
from border_cli.agent.policies import QPolicy
from border_cli.agent.torch_agent import TorchAgent, norm_metric
from border_cli.core.interfaces import PolicyFactory
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Update
from border_cli.nn.matmul import TORCH, Layer, TorchProducts, products_of
from border_cli.nn.network import (
    Gradient,
    Network,
    backward,
    forward,
    polyak_update,
    target_of,
)
from border_cli.nn.numpy_network import NumpyValueNetwork
from border_cli.nn.tensor_batch import TDResult, TensorBatch, conservative_gap
from border_cli.nn.value_network import ValueNetwork

DIAGNOSTICS_INTERVAL = 100  # updates

MakeNetwork: TypeAlias = Callable[[torch.Generator], nn.Module]  # its weights from the generator


def td_target(batch: TensorBatch, q_next: Tensor, q_next_online: Tensor | None) -> Tensor:
    """What Q(s, a) should have been, for every row. [B, 1]

    y = r + d max_a' Q_target(s', a'), where d is already 0 at the end of an episode. Double: the
    online network chooses the next action, y = r + d Q_target(s', argmax_a' Q(s', a')).
    """
    if q_next_online is None:
        value = q_next.amax(dim=1, keepdim=True)  # [B, 1]
    else:
        value = q_next.gather(1, q_next_online.argmax(dim=1, keepdim=True))  # [B, 1]
    return torch.addcmul(batch.reward, batch.discount, value)


def weighted_loss(error: Tensor, weight: Tensor, kind: Loss) -> tuple[Tensor, Tensor]:
    """Mean of weight * loss(error), and its derivative by each error. [], [B, 1]

    The weight stands outside the loss, so that it is not squared with the error.
    """
    row_weight = weight / len(error)  # [B, 1]
    if kind == Loss.mse:
        grad_error = row_weight * error * 2
        return torch.sum(grad_error * error) / 2, grad_error
    bounded = error.clamp(-1, 1)
    grad_error = row_weight * bounded
    return torch.sum(grad_error * torch.sub(error, bounded, alpha=0.5)), grad_error


def td_loss(
    q: Tensor,
    q_next: Tensor,
    q_next_online: Tensor | None,
    batch: TensorBatch,
    *,
    loss: Loss,
    conservative_weight: float = 0.0,
) -> TDResult:
    """The loss of Q(s, a) - y. q = Q(s, ·), q_next and q_next_online of s' [B, num_actions]"""
    q_sa = q.gather(1, batch.action)  # [B, 1]
    error = q_sa - td_target(batch, q_next, q_next_online)  # [B, 1]
    mean_loss, grad_error = weighted_loss(error, batch.weight, loss)
    grad_output = torch.zeros_like(q).scatter_(1, batch.action, grad_error)  # [B, num_actions]
    gap = None
    if conservative_weight:
        gap, grad_gap = conservative_gap(q, batch.action, batch.weight)
        grad_output = torch.add(grad_output, grad_gap, alpha=conservative_weight)
    return TDResult(grad_output, mean_loss, q_sa.mean(), -error, gap)


class TDLoss(Protocol):
    """The TD loss and its derivative by `outputs`, in closed form.

    From outputs for s of the online network, for s' of the target network, and, if double, for s'
    of the online network; all [B, outputs].
    """

    def __call__(
        self,
        outputs: Tensor,
        next_outputs: Tensor,
        next_outputs_online: Tensor | None,
        batch: TensorBatch,
    ) -> TDResult: ...


def written_out(
    online: Sequence[Layer],
    target: Sequence[Layer],
    batch: TensorBatch,
    *,
    td_loss: TDLoss,
    double: bool,
    products: TorchProducts = TORCH,
) -> tuple[Gradient, TDResult]:
    """The gradient of the loss by all weights of dense layers with ReLU, without autograd."""
    assert isinstance(batch.obs, Tensor)
    assert isinstance(batch.next_obs, Tensor)
    inputs = forward(online, batch.obs, products)
    next_outputs = forward(target, batch.next_obs, products)[-1]
    next_outputs_online = forward(online, batch.next_obs, products)[-1] if double else None
    result = td_loss(inputs[-1], next_outputs, next_outputs_online, batch)
    gradient, _ = backward(online, inputs, result.grad_output, products)
    return gradient, result


def by_autograd(
    online: nn.Module,
    target: nn.Module,
    batch: TensorBatch,
    noise: Tensor | None,
    *,
    td_loss: TDLoss,
    double: bool,
) -> tuple[Tensor, TDResult]:
    """The outputs of any network, with autograd's graph, and the derivative of the loss by them.

    Each pass has its own noise, where there is any. [3, draws]
    """

    def outputs_of(network: nn.Module, features: object, which: int) -> Tensor:
        result: Tensor = network(features) if noise is None else network(features, noise[which])
        return result

    outputs = outputs_of(online, batch.obs, 0)
    with torch.no_grad():
        next_outputs = outputs_of(target, batch.next_obs, 1)
        next_outputs_online = outputs_of(online, batch.next_obs, 2) if double else None
        result = td_loss(outputs.detach(), next_outputs, next_outputs_online, batch)
    return outputs, result


class ValueAgent(TorchAgent):
    """Owns Q, Q_target and the optimizer; learns Q by gradient steps on a TD loss.

    A subclass makes the network, and sets `td_loss` or learns in its own way. The learner's thread
    calls everything.
    """

    targets = {"target": "online"}  # noqa: RUF012 - read-only, and a ClassVar in the base
    config: ValueConfig
    td_loss: TDLoss

    def __init__(
        self,
        config: ValueConfig,
        *,
        spec: EnvSpec,
        device: str,
        seed: int,
        make_network: MakeNetwork,
    ) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.online = make_network(self.init_generator).to(self.device)
        self.target = target_of(self.online)
        self._polyak_pair = list(self.target.parameters()), list(self.online.parameters())
        self.optimizer = self.make_optimizer(
            self.online, config.learning_rate, config.max_grad_norm, epsilon=config.adam_epsilon
        )
        self.register_state(online=self.online, target=self.target, optimizer=self.optimizer)
        self.register_acting(network=self.online)
        self._dense = self._dense_layers()
        self._products = products_of(self.architecture)
        self._written_out = self.compiled(written_out)
        self._by_autograd = self.compiled(by_autograd)

    def learn(self, batch: TensorBatch) -> Update:
        """Algorithm 1: a gradient step on the TD loss, then the target network."""
        double = self.config.double
        if self._dense is not None:
            gradient: Gradient
            gradient, result = self._written_out(
                *self._dense, batch, td_loss=self.td_loss, double=double, products=self._products
            )
            grad_norm = self.optimizer.step(gradient)
        else:
            outputs, result = self._by_autograd(
                self.online,
                self.target,
                batch,
                self.pass_noise(),
                td_loss=self.td_loss,
                double=double,
            )
            grad_norm = self.optimizer.minimize(outputs, result.grad_output)
        metrics = {"loss": result.loss, "q_mean": result.q_mean}
        if result.conservative_gap is not None:
            metrics["conservative_gap"] = result.conservative_gap
        if self.opt_steps % DIAGNOSTICS_INTERVAL == 0:
            metrics |= self.diagnostics(result, batch)
        td_error = result.td_error  # the rest of the result need not live as long
        return self.finish_update(grad_norm, metrics, lambda: td_error.squeeze(1).cpu().numpy())

    def finish_update(
        self, grad_norm: Tensor | None, metrics: Mapping[str, Tensor], td_error: Callable[[], Any]
    ) -> Update:
        """Moves the target network, every `target_interval` updates."""
        if self.opt_steps % self.config.target_interval == 0:
            with torch.no_grad():
                polyak_update(*self._polyak_pair, self.config.tau)
        return Update(metrics={**metrics, **norm_metric(grad_norm, "grad_norm")}, td_error=td_error)

    def pass_noise(self) -> Tensor | None:
        """The noise of the three forward passes of a noisy network. [3, draws]"""
        return None

    def diagnostics(self, result: TDResult, batch: TensorBatch) -> dict[str, Tensor]:  # noqa: ARG002
        """Metrics that only every hundredth update has, because they take time."""
        return {}

    def _dense_layers(self) -> tuple[tuple[Layer, ...], tuple[Layer, ...]] | None:
        """Weights of both networks if they are no more than dense layers with ReLU.

        For them the gradient is written out: an update takes 1.4 times as long with autograd.
        """
        online, target = self.online, self.target
        if not isinstance(online, Network) or not isinstance(target, Network):
            return None
        if self.architecture.has_encoder or not online.mlp.plain:
            return None
        return online.mlp.layers_in_memory(), target.mlp.layers_in_memory()


class Dqn(ValueAgent):
    """Q-learning with a target network; plain, or dueling, noisy and distributional."""

    name: ClassVar[str] = "dqn"
    config: DqnConfig

    def __init__(self, config: DqnConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        self.num_actions = num_discrete_actions(spec, self.name)
        super().__init__(
            config,
            spec=spec,
            device=device,
            seed=seed,
            make_network=_network(config, spec, self.num_actions),
        )
        if config.categorical:
            atoms = torch.linspace(config.v_min, config.v_max, config.num_atoms, device=self.device)
            self.td_loss = partial(
                c51.td_loss, atoms=atoms, conservative_weight=config.conservative_weight
            )
        else:
            self.td_loss = partial(
                td_loss, loss=config.loss, conservative_weight=config.conservative_weight
            )
        self._support = c51.SupportCheck(config.v_min, config.v_max)

    @property
    def policy_factory(self) -> PolicyFactory:
        config = self.config
        network = self.acting_network()
        if not config.plain:
            network = self.acting_network(NumpyValueNetwork, atoms=config.num_atoms)
        atoms = (config.v_min, config.v_max, config.num_atoms) if config.categorical else None
        return partial(
            QPolicy,
            config,
            network=network,
            num_actions=self.num_actions,
            atoms=atoms,
            noisy=config.noisy,
        )

    def pass_noise(self) -> Tensor | None:
        if not self.config.noisy:
            return None
        assert isinstance(self.online, ValueNetwork)
        return self.normal(3, self.online.draws)

    def diagnostics(self, result: TDResult, batch: TensorBatch) -> dict[str, Tensor]:
        if result.target is None:
            return {}
        return self._support.check(result.target, batch.discount)


def _network(config: DqnConfig, spec: EnvSpec, num_actions: int) -> MakeNetwork:
    """How to make the network of these settings."""
    architecture = config.architecture(spec.observation)
    if config.plain:
        return partial(Network, architecture, num_actions * config.num_atoms)
    return partial(
        ValueNetwork,
        architecture,
        num_actions,
        atoms=config.num_atoms,
        dueling=config.dueling,
        noisy_std=config.noisy_std if config.noisy else None,
    )
