"""Proximal policy optimization.

Schulman et al. 2017, "Proximal policy optimization algorithms", equations 7 and 9, with the details
of Huang et al. 2022, "The 37 implementation details of proximal policy optimization": advantages
are normalised in each minibatch, weights begin orthogonal, one norm clips the gradient of all
networks. Advantages are those of `advantages.py`; a truncated episode bootstraps from its true last
observation. The learner computes values and log-probabilities of a whole rollout in one pass before
its first epoch, and compares the latter with those of the actors (`log_prob_gap`).

A Box has a Gaussian in the environment's units, whose deviations are the same in every state;
actors clip only what they send to the environment. Statistics of observations and returns take in a
rollout after its epochs, so that nothing changes within one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, SupportsFloat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.agent.action_space import components_of, name_of
from border_cli.agent.advantages import Segments, advantages
from border_cli.agent.densities import ChoiceDensity, Density, GaussianDensity
from border_cli.agent.on_policy_policies import (
    LOG_PROB,
    UNCLIPPED,
    columns_of_policy,
    sampling_policy,
)
from border_cli.agent.ppo_config import PpoConfig
from border_cli.agent.torch_agent import TorchAgent, norm_metric
from border_cli.core.interfaces import OnPolicyAgent, PolicyFactory
from border_cli.core.returns import Moments
from border_cli.core.spaces import BoxSpace, EnvSpec, split_mask
from border_cli.core.types import EPISODE, Array, Column, Transitions, Update, map_array
from border_cli.errors import ConfigError
from border_cli.nn.choices import Choices
from border_cli.nn.features import FeatureTensors, TensorObs
from border_cli.nn.network import Network
from border_cli.nn.orthogonal import make_orthogonal
from border_cli.nn.tensor_batch import TensorBatch, map_tensors, tensor_obs
from border_cli.settings.run import AgentConfig
from border_cli.settings.schedule import schedule_of, value_at

ROWS_AT_ONCE = 1024  # of a rollout, in the pass before its epochs
KL_FACTOR = 1.5  # times target_kl: beyond it a rollout is dropped; of OpenAI's spinningup

# Columns that the agent computes for the minibatches of a rollout. [M] each
PREPARED = ADVANTAGE, TARGET, VALUE, OLD_LOG_PROB = "advantage", "target", "value", "old_log_prob"


class PolicyLoss(NamedTuple):
    """The clipped surrogate of a minibatch, by its derivative by the log-probabilities."""

    loss: Tensor  # []
    grad: Tensor  # [B]
    approx_kl: Tensor  # []  mean of (ratio - 1) - log ratio (Schulman 2020)
    clip_fraction: Tensor  # []  share of ratios beyond the range


def policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, low: Tensor, high: Tensor
) -> PolicyLoss:
    """-E[min(ratio A, clip(ratio, low, high) A)], equation 7. [B], [B], [B], [], []"""
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(low, high)
    gain, least = ratio * advantage, clipped * advantage
    return PolicyLoss(
        loss=-torch.minimum(gain, least).mean(),
        grad=gain * (gain <= least) / -len(gain),  # the derivative of a ratio is the ratio
        approx_kl=(ratio - log_ratio).mean() - 1,
        clip_fraction=(ratio != clipped).float().mean(),
    )


class SquaredErrors(NamedTuple):
    """The squared error of a minibatch, by its derivative by the values."""

    loss: Tensor  # []
    grad: Tensor  # [B]


def value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip_range: float | None
) -> SquaredErrors:
    """E[(V - target)^2]; with a range, of the larger error, of V or of V clipped around the old
    one. [B] each"""
    error = value - target
    if clip_range is None:
        return SquaredErrors(error.square().mean(), error * (2 / len(error)))
    moved = value - old_value
    near = old_value + moved.clamp(-clip_range, clip_range) - target
    larger = near.abs() > error.abs()
    slope = torch.where(larger, near * (moved.abs() <= clip_range), error)
    return SquaredErrors(torch.where(larger, near, error).square().mean(), slope * (2 / len(error)))


def normalised(advantage: Tensor) -> Tensor:
    """With mean 0 and deviation 1; of a single row as it is. [B]"""
    if len(advantage) == 1:
        return advantage
    std, mean = torch.std_mean(advantage)
    return (advantage - mean) / (std + 1e-8)


class Ppo(TorchAgent, OnPolicyAgent):
    """Owns policy, value function and their optimizer; the learner's thread calls it."""

    name: ClassVar[str] = "ppo"
    config: PpoConfig

    def __init__(self, config: PpoConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.observes = False  # statistics take in whole rollouts, in `finish`
        self._prepares = False  # actions stay in the environment's units, rewards are done with
        self._choices, self._size = self._form_of_actions()
        shared = config.share_network
        self._shares = self.architecture.has_encoder if shared is None else shared
        self._make_networks()
        self._learning_rate = value_at(schedule_of(config.learning_rate), 0, 0.0)
        self.optimizer = self.make_optimizer(
            self.learned,
            self._learning_rate,
            config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        self.register_state(learned=self.learned, optimizer=self.optimizer)
        self._waiting: list[Moments] = []  # running returns of the rollout that is collected
        self._set_clip_range(0.0)
        self._losses = self.compiled(self.losses)
        self._of_rollout: dict[str, float] = {}  # metrics

    def _make_networks(self) -> None:
        config, generator = self.config, self.init_generator
        outputs = self._size + self._shares  # the value is the last one
        self.policy = Network(self.architecture, outputs, generator)
        self.learned = nn.ModuleList([self.policy])
        if not self._shares:
            self.value = Network(self.architecture, 1, generator)
            self.learned.append(self.value)
        if config.orthogonal_init:
            of_user = self.architecture.target is not None  # who chooses its first weights
            first = partial(make_orthogonal, generator=generator, dense_only=of_user)
            first(self.policy, gain=0.01, outputs=self._size)
            if not self._shares:
                first(self.value, gain=1.0)
        self.acting_modules["network"] = self.policy
        if self._choices is None:  # the deviations of a Box
            log_std = nn.Parameter(torch.full((self._size,), config.log_std_init))
            self.noise = nn.ParameterDict({"log_std": log_std})
            self.learned.append(self.noise)
            self.acting_modules["noise"] = self.noise
        self.learned.to(self.device)

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:
        """The log-probability of each action; of a Box also the action before it was clipped."""
        del config
        return columns_of_policy(spec)

    def _form_of_actions(self) -> tuple[Choices | None, int]:
        """The choices of an action, None for a Box; and the outputs of a policy."""
        nvec = components_of(self.spec.action)
        if nvec is not None:
            choices = Choices(nvec, self.device)
            return choices, choices.size
        space = self.spec.action
        assert isinstance(space, BoxSpace)
        if not np.issubdtype(np.dtype(space.dtype), np.floating):
            raise ConfigError(
                f"agent=ppo needs a Box of real numbers or discrete actions; env.id={self.spec.id} "
                f"has {name_of(space)}"
            )
        return None, math.prod(space.shape)

    @property
    def policy_factory(self) -> PolicyFactory:
        return sampling_policy(self.spec, self.acting_network())

    def density(self, outputs: Tensor, mask: Tensor | None, action: Tensor) -> Density:
        """What the outputs of the policy say of actions. [B, outputs], [B, S], [B, K] or [B, A]"""
        outputs = outputs[:, : self._size]
        if self._choices is None:
            return GaussianDensity(outputs, self.noise["log_std"].detach(), action)
        return ChoiceDensity(self._choices, outputs, mask, action)

    def _outputs(self, features: FeatureTensors) -> tuple[Tensor, Tensor]:
        """Of policy and values, as constants. [B, outputs], [B, 1]"""
        outputs, _ = self.policy.keeping(features)
        if self._shares:
            return outputs, outputs[:, -1:]
        return outputs, self.value.keeping(features)[0]

    def _features(self, obs: TensorObs) -> FeatureTensors:
        return obs if self.features.changes_nothing else self.features(obs)

    def _seen(self, obs: Array) -> tuple[FeatureTensors, Tensor | None]:
        """Observations as networks take them, and the mask apart."""
        mask = None
        if self._has_masks:
            obs, valid = split_mask(obs)
            mask = torch.from_numpy(valid).to(self.device)
        moved = map_tensors(lambda part: part.to(self.device), tensor_obs(obs))
        return self._features(moved), mask

    def _drawn(self, rows: Transitions) -> Tensor:
        """The actions that were drawn. [M, K] int64 or [M, A] float32"""
        drawn = rows.action if self._choices is not None else rows.extras[UNCLIPPED]
        return torch.from_numpy(drawn.reshape(len(drawn), -1)).to(self.device)

    @torch.no_grad()
    def prepare(
        self, rollout: Transitions, *, env_steps: int, done: float
    ) -> Mapping[str, NDArray[np.float32]]:
        config = self.config
        self._set_learning_rate(value_at(schedule_of(config.learning_rate), env_steps, done))
        self._set_clip_range(value_at(schedule_of(config.clip_range), env_steps, done))
        segments = Segments(rollout.extras[EPISODE])
        looks = [self._look_at(rollout, part) for part in _slices(len(rollout))]
        value, log_prob = (np.concatenate(each) for each in zip(*looks, strict=True))
        last_value = self._values(
            map_array(lambda array: array[segments.last], rollout.next_obs), len(segments.last)
        )
        reward = self._normalization.divided(rollout.reward)
        if config.normalize_reward:
            reward = reward.clip(-config.clip_reward, config.clip_reward)
        advantage = advantages(
            segments,
            reward=reward,
            discount=rollout.discount,
            value=value,
            last_value=last_value,
            gae_lambda=config.gae_lambda,
        )
        target = advantage + value
        gap = np.abs(log_prob - rollout.extras[LOG_PROB]).max()
        spread = float(np.var(target))
        self._of_rollout = {
            "log_prob_gap": float(gap),
            "explained_variance": 1 - float(np.var(advantage)) / spread if spread else 0.0,
            "learning_rate": self._learning_rate,
            "clip_range": self._clip_range,
        }
        columns = {ADVANTAGE: advantage, TARGET: target, VALUE: value, OLD_LOG_PROB: log_prob}
        return {name: column.astype(np.float32) for name, column in columns.items()}

    def _look_at(
        self, rollout: Transitions, part: slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Values and log-probabilities of some rows of a rollout."""
        features, mask = self._seen(_part(rollout.obs, part))
        outputs, value = self._outputs(features)
        density = self.density(outputs, mask, self._drawn(rollout)[part])
        return value.squeeze(1).cpu().numpy(), density.log_prob.cpu().numpy()

    def _values(self, obs: Array, rows: int) -> NDArray[np.float32]:
        """V of observations. [M, …] -> [M]"""
        features = (self._seen(_part(obs, part))[0] for part in _slices(rows))
        values = [self._outputs(each)[1].squeeze(1) for each in features]
        return torch.cat(values).cpu().numpy()

    @torch.no_grad()
    def learn(self, batch: TensorBatch) -> Update | None:
        config, columns = self.config, batch.extras
        assert columns is not None
        features = self._features(batch.obs)
        with torch.enable_grad():  # for networks whose backward passes are autograd's
            outputs, kept = self.policy.keeping(features)
            value, kept_of_value = outputs[:, -1:], kept
            if not self._shares:
                value, kept_of_value = self.value.keeping(features)
        action = batch.action if self._choices is not None else columns[UNCLIPPED]
        density = self.density(outputs, batch.mask, action)
        of_policy, of_value = self._losses(density.log_prob, value, columns, self._range)
        if config.target_kl is not None and of_policy.approx_kl > KL_FACTOR * config.target_kl:
            return None
        by_outputs, *by_log_std = density.derivative(of_policy.grad, -config.ent_coef / len(action))
        by_value = config.value_coef * of_value.grad[:, None]
        if self._shares:
            gradient = self.policy.backward(kept, torch.cat([by_outputs, by_value], 1))
        else:
            gradient = (
                *self.policy.backward(kept, by_outputs),
                *self.value.backward(kept_of_value, by_value),
            )
        norm = self.optimizer.step((*gradient, *by_log_std))
        metrics: dict[str, SupportsFloat] = {
            "loss_policy": of_policy.loss,
            "loss_value": of_value.loss,
            "entropy": density.entropy.mean(),
            "approx_kl": of_policy.approx_kl,
            "clip_fraction": of_policy.clip_fraction,
            **norm_metric(norm, "grad_norm"),
            **self._of_rollout,
        }
        return Update(metrics=metrics)

    def losses(
        self,
        log_prob: Tensor,
        value: Tensor,
        columns: Mapping[str, Tensor],
        bounds: tuple[Tensor, Tensor],
    ) -> tuple[PolicyLoss, SquaredErrors]:
        """Of the policy, with ratios clipped to these bounds, and of the values."""
        advantage, target, old_value, old_log_prob = (columns[name].squeeze(1) for name in PREPARED)
        if self.config.normalize_advantage:
            advantage = normalised(advantage)
        of_policy = policy_loss(log_prob, old_log_prob, advantage, *bounds)
        clip_range = self.config.value_clip_range
        return of_policy, value_loss(value.squeeze(1), old_value, target, clip_range)

    @property
    def batch_columns(self) -> Sequence[Column]:
        return [
            *super().batch_columns,
            *((name, np.dtype(np.float32), ()) for name in PREPARED),
        ]

    def _set_clip_range(self, value: float) -> None:
        self._clip_range = value
        # Tensors, because torch compiles anew for each number.
        low, high = (torch.tensor(each, device=self.device) for each in (1 - value, 1 + value))
        self._range = low, high

    def _set_learning_rate(self, value: float) -> None:
        self._learning_rate = value
        self.optimizer.set_learning_rate(value)

    def finish(self, rollout: Transitions) -> None:
        self.observe(rollout)
        for returns in self._waiting:
            super().observe_returns(returns)
        self._waiting = []

    def observe_returns(self, returns: Moments) -> None:
        self._waiting.append(returns)

    def state_dict(self) -> dict[str, Any]:
        waiting = [[each.count, each.mean, each.squares] for each in self._waiting]
        return {
            **super().state_dict(),
            "waiting": waiting,
            "clip_range": self._clip_range,
            "learning_rate": self._learning_rate,
            "of_rollout": dict(self._of_rollout),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._waiting = [Moments(int(count), *rest) for count, *rest in state["waiting"]]
        self._set_clip_range(float(state["clip_range"]))
        self._set_learning_rate(float(state["learning_rate"]))
        self._of_rollout = dict(state["of_rollout"])


def _slices(rows: int) -> Iterator[slice]:
    edges = [*range(0, rows, ROWS_AT_ONCE), rows]
    return (slice(*each) for each in pairwise(edges))


def _part(obs: Array, part: slice) -> Array:
    return map_array(lambda array: array[part], obs)
