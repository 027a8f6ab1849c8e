"""Proximal policy optimization (PPO).

Schulman et al. 2017, "Proximal policy optimization algorithms", equations 7 and 9, with details of
Huang et al. 2022, "The 37 implementation details of proximal policy optimization": advantages are
normalised per minibatch, initial weights are orthogonal, and the gradient of all networks is
clipped by its global norm. Advantages come from `advantages.py`; truncated episodes bootstrap from
their final observation. Before the first epoch, the learner computes the values and
log-probabilities of a whole rollout and compares the latter with the actors' (`log_prob_gap`).

The policy of a Box is a Gaussian in the environment's units with state-independent standard
deviations. Only actions sent to the environment are clipped. Running statistics are updated after
the epochs of a rollout, so that they are constant within it.
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

from border_cli.agent.action_space import components_of, format_space
from border_cli.agent.advantages import Segments, advantages
from border_cli.agent.densities import ChoiceDensity, Density, GaussianDensity
from border_cli.agent.on_policy_policies import (
    LOG_PROB,
    UNCLIPPED,
    policy_columns,
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

ROWS_AT_ONCE = 1024  # rows per forward pass in `Ppo.prepare`
KL_FACTOR = 1.5  # limit of the KL divergence as a multiple of target_kl, as in Spinning Up

# Columns that the agent adds to a rollout for its minibatches. [M] each
PREPARED = ADVANTAGE, TARGET, VALUE, OLD_LOG_PROB = "advantage", "target", "value", "old_log_prob"


class PolicyLoss(NamedTuple):
    """The clipped surrogate loss of a minibatch."""

    loss: Tensor  # []
    grad: Tensor  # [B]  gradient with respect to the log-probabilities
    approx_kl: Tensor  # []  mean of (ratio - 1) - log ratio (Schulman 2020)
    clip_fraction: Tensor  # []  fraction of ratios that are clipped


def policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, low: Tensor, high: Tensor
) -> PolicyLoss:
    """Returns -E[min(ratio A, clip(ratio, low, high) A)], equation 7. [B], [B], [B], [], []"""
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(low, high)
    gain, clipped_gain = ratio * advantage, clipped * advantage
    return PolicyLoss(
        loss=-torch.minimum(gain, clipped_gain).mean(),
        grad=gain * (gain <= clipped_gain) / -len(gain),  # because d ratio / d log_prob = ratio
        approx_kl=(ratio - log_ratio).mean() - 1,
        clip_fraction=(ratio != clipped).float().mean(),
    )


class SquaredErrors(NamedTuple):
    """The value loss of a minibatch."""

    loss: Tensor  # []
    grad: Tensor  # [B]  gradient with respect to the values


def value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip_range: float | None
) -> SquaredErrors:
    """Returns E[(V - target)^2], or with `clip_range` the maximum of this squared error and that of
    V clipped around the old values. [B] each"""
    error = value - target
    if clip_range is None:
        return SquaredErrors(error.square().mean(), error * (2 / len(error)))
    change = value - old_value
    capped = old_value + change.clamp(-clip_range, clip_range) - target
    larger = capped.abs() > error.abs()
    grad = torch.where(larger, capped * (change.abs() <= clip_range), error)
    return SquaredErrors(
        torch.where(larger, capped, error).square().mean(), grad * (2 / len(error))
    )


def normalize_advantages(advantage: Tensor) -> Tensor:
    """Normalises to mean 0 and standard deviation 1; returns a single row unchanged. [B]"""
    if len(advantage) == 1:
        return advantage
    std, mean = torch.std_mean(advantage)
    return (advantage - mean) / (std + 1e-8)


class Ppo(TorchAgent, OnPolicyAgent):
    """Proximal policy optimization. Owned and called by the learner thread."""

    name: ClassVar[str] = "ppo"
    config: PpoConfig

    def __init__(self, config: PpoConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.observes = False  # `finish` updates the statistics with whole rollouts
        self._needs_preparation = (
            False  # `prepare` scales rewards; actions keep the environment's units
        )
        self._choices, self._size = self._resolve_actions()
        shared = config.share_network
        self._is_shared = self.architecture.has_encoder if shared is None else shared
        self._make_networks()
        self._learning_rate = value_at(schedule_of(config.learning_rate), 0, 0.0)
        self.optimizer = self.make_optimizer(
            self.learned,
            self._learning_rate,
            config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        self.register_state(learned=self.learned, optimizer=self.optimizer)
        self._pending: list[Moments] = []  # returns of the current rollout, merged in `finish`
        self._set_clip_range(0.0)
        self._losses = self.maybe_compile(self.losses)
        self._rollout_metrics: dict[str, float] = {}  # metrics of the rollout

    def _make_networks(self) -> None:
        config, rng = self.config, self.init_generator
        outputs = self._size + self._is_shared  # the last output of a shared network is the value
        self.policy = Network(self.architecture, outputs, rng)
        self.learned = nn.ModuleList([self.policy])
        if not self._is_shared:
            self.value = Network(self.architecture, 1, rng)
            self.learned.append(self.value)
        if config.orthogonal_init:
            is_custom = self.architecture.target is not None  # custom encoders keep their weights
            initialise = partial(make_orthogonal, rng=rng, dense_only=is_custom)
            initialise(self.policy, gain=0.01, outputs=self._size)
            if not self._is_shared:
                initialise(self.value, gain=1.0)
        self.acting_modules["network"] = self.policy
        if self._choices is None:  # continuous actions
            log_std = nn.Parameter(torch.full((self._size,), config.log_std_init))
            self.noise = nn.ParameterDict({"log_std": log_std})
            self.learned.append(self.noise)
            self.acting_modules["noise"] = self.noise
        self.learned.to(self.device)

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:
        """Returns the log-probability column and, for a Box, that of the unclipped actions."""
        del config
        return policy_columns(spec)

    def _resolve_actions(self) -> tuple[Choices | None, int]:
        """Returns the choices of an action (None for a Box) and the number of policy outputs."""
        nvec = components_of(self.spec.action)
        if nvec is not None:
            choices = Choices(nvec, self.device)
            return choices, choices.size
        space = self.spec.action
        assert isinstance(space, BoxSpace)
        if not np.issubdtype(np.dtype(space.dtype), np.floating):
            raise ConfigError(
                f"agent=ppo needs discrete actions or a Box of real numbers; env.id={self.spec.id} "
                f"has {format_space(space)}"
            )
        return None, math.prod(space.shape)

    @property
    def policy_factory(self) -> PolicyFactory:
        return sampling_policy(self.spec, self.acting_network())

    def density(self, outputs: Tensor, mask: Tensor | None, action: Tensor) -> Density:
        """Evaluates actions under the policy. [B, outputs], [B, S], [B, K] or [B, A]"""
        outputs = outputs[:, : self._size]
        if self._choices is None:
            return GaussianDensity(outputs, self.noise["log_std"].detach(), action)
        return ChoiceDensity(self._choices, outputs, mask, action)

    def _forward(self, features: FeatureTensors) -> tuple[Tensor, Tensor]:
        """Returns policy outputs and values without gradients. [B, outputs], [B, 1]"""
        outputs, _ = self.policy.forward_with_cache(features)
        if self._is_shared:
            return outputs, outputs[:, -1:]
        return outputs, self.value.forward_with_cache(features)[0]

    def _features(self, obs: TensorObs) -> FeatureTensors:
        return obs if self.features.changes_nothing else self.features(obs)

    def _split_obs(self, obs: Array) -> tuple[FeatureTensors, Tensor | None]:
        """Separates observations into network inputs and action mask."""
        mask = None
        if self._has_masks:
            obs, valid = split_mask(obs)
            mask = torch.from_numpy(valid).to(self.device)
        tensors = map_tensors(lambda part: part.to(self.device), tensor_obs(obs))
        return self._features(tensors), mask

    def _unclipped_actions(self, rows: Transitions) -> Tensor:
        """Returns the sampled actions before clipping. [M, K] int64 or [M, A] float32"""
        actions = rows.action if self._choices is not None else rows.extras[UNCLIPPED]
        return torch.from_numpy(actions.reshape(len(actions), -1)).to(self.device)

    @torch.no_grad()
    def prepare(
        self, rollout: Transitions, *, env_steps: int, done: float
    ) -> Mapping[str, NDArray[np.float32]]:
        config = self.config
        self._set_learning_rate(value_at(schedule_of(config.learning_rate), env_steps, done))
        self._set_clip_range(value_at(schedule_of(config.clip_range), env_steps, done))
        segments = Segments(rollout.extras[EPISODE])
        results = [self._evaluate(rollout, part) for part in _split_rows(len(rollout))]
        value, log_prob = (np.concatenate(parts) for parts in zip(*results, strict=True))
        last_value = self._compute_values(
            map_array(lambda array: array[segments.last], rollout.next_obs), len(segments.last)
        )
        reward = self._normalization.scale_rewards(rollout.reward)
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
        log_prob_gap = np.abs(log_prob - rollout.extras[LOG_PROB]).max()
        variance = float(np.var(target))
        self._rollout_metrics = {
            "log_prob_gap": float(log_prob_gap),
            "explained_variance": 1 - float(np.var(advantage)) / variance if variance else 0.0,
            "learning_rate": self._learning_rate,
            "clip_range": self._clip_range,
        }
        columns = {ADVANTAGE: advantage, TARGET: target, VALUE: value, OLD_LOG_PROB: log_prob}
        return {name: column.astype(np.float32) for name, column in columns.items()}

    def _evaluate(
        self, rollout: Transitions, part: slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns values and log-probabilities for a slice of the rollout."""
        features, mask = self._split_obs(_slice_obs(rollout.obs, part))
        outputs, value = self._forward(features)
        density = self.density(outputs, mask, self._unclipped_actions(rollout)[part])
        return value.squeeze(1).cpu().numpy(), density.log_prob.cpu().numpy()

    def _compute_values(self, obs: Array, rows: int) -> NDArray[np.float32]:
        """Returns the values of observations. [M, …] -> [M]"""
        inputs = (self._split_obs(_slice_obs(obs, part))[0] for part in _split_rows(rows))
        values = [self._forward(features)[1].squeeze(1) for features in inputs]
        return torch.cat(values).cpu().numpy()

    @torch.no_grad()
    def learn(self, batch: TensorBatch) -> Update | None:
        config, columns = self.config, batch.extras
        assert columns is not None
        features = self._features(batch.obs)
        with torch.enable_grad():  # for networks that rely on autograd
            outputs, cache = self.policy.forward_with_cache(features)
            value, value_cache = outputs[:, -1:], cache
            if not self._is_shared:
                value, value_cache = self.value.forward_with_cache(features)
        action = batch.action if self._choices is not None else columns[UNCLIPPED]
        density = self.density(outputs, batch.mask, action)
        surrogate, squared_errors = self._losses(density.log_prob, value, columns, self._range)
        if config.target_kl is not None and surrogate.approx_kl > KL_FACTOR * config.target_kl:
            return None
        grad_output, *grad_std = density.backward(surrogate.grad, -config.ent_coef / len(action))
        grad_value = config.value_coef * squared_errors.grad[:, None]
        if self._is_shared:
            gradient = self.policy.backward(cache, torch.cat([grad_output, grad_value], 1))
        else:
            gradient = (
                *self.policy.backward(cache, grad_output),
                *self.value.backward(value_cache, grad_value),
            )
        norm = self.optimizer.step((*gradient, *grad_std))
        metrics: dict[str, SupportsFloat] = {
            "loss_policy": surrogate.loss,
            "loss_value": squared_errors.loss,
            "entropy": density.entropy.mean(),
            "approx_kl": surrogate.approx_kl,
            "clip_fraction": surrogate.clip_fraction,
            **norm_metric(norm, "grad_norm"),
            **self._rollout_metrics,
        }
        return Update(metrics=metrics)

    def losses(
        self,
        log_prob: Tensor,
        value: Tensor,
        columns: Mapping[str, Tensor],
        bounds: tuple[Tensor, Tensor],
    ) -> tuple[PolicyLoss, SquaredErrors]:
        """Returns the policy loss, with ratios clipped to `bounds`, and the value loss."""
        advantage, target, old_value, old_log_prob = (columns[name].squeeze(1) for name in PREPARED)
        if self.config.normalize_advantage:
            advantage = normalize_advantages(advantage)
        surrogate = policy_loss(log_prob, old_log_prob, advantage, *bounds)
        clip_range = self.config.value_clip_range
        return surrogate, value_loss(value.squeeze(1), old_value, target, clip_range)

    @property
    def batch_columns(self) -> Sequence[Column]:
        return [
            *super().batch_columns,
            *((name, np.dtype(np.float32), ()) for name in PREPARED),
        ]

    def _set_clip_range(self, value: float) -> None:
        self._clip_range = value
        # Tensors, because torch would recompile for each new number.
        low, high = (torch.tensor(bound, device=self.device) for bound in (1 - value, 1 + value))
        self._range = low, high

    def _set_learning_rate(self, value: float) -> None:
        self._learning_rate = value
        self.optimizer.set_learning_rate(value)

    def finish(self, rollout: Transitions) -> None:
        self.observe(rollout)
        for returns in self._pending:
            super().observe_returns(returns)
        self._pending = []

    def observe_returns(self, returns: Moments) -> None:
        self._pending.append(returns)

    def state_dict(self) -> dict[str, Any]:
        waiting = [[returns.count, returns.mean, returns.squares] for returns in self._pending]
        return {
            **super().state_dict(),
            "waiting": waiting,
            "clip_range": self._clip_range,
            "learning_rate": self._learning_rate,
            "of_rollout": dict(self._rollout_metrics),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._pending = [Moments(int(count), *rest) for count, *rest in state["waiting"]]
        self._set_clip_range(float(state["clip_range"]))
        self._set_learning_rate(float(state["learning_rate"]))
        self._rollout_metrics = dict(state["of_rollout"])


def _split_rows(rows: int) -> Iterator[slice]:
    edges = [*range(0, rows, ROWS_AT_ONCE), rows]
    return (slice(*pair) for pair in pairwise(edges))


def _slice_obs(obs: Array, part: slice) -> Array:
    return map_array(lambda array: array[part], obs)
