"""Proximal policy optimization (PPO).

Schulman et al. 2017, "Proximal policy optimization algorithms", equations 7 and 9, with details of
Huang et al. 2022, "The 37 implementation details of proximal policy optimization": advantages are
normalised per minibatch, initial weights are orthogonal, and the gradient of all networks is
clipped by its global norm. Advantages come from `advantages.py`; truncated episodes bootstrap from
their final observation. Before the first epoch, the learner computes the values and
log-probabilities of a whole rollout and compares the latter with the actors' (`log_prob_gap`).

The policy of a Box is a Gaussian in the environment's units, whose standard deviations depend on
the state only with gSDE. Only actions sent to the environment are clipped. Running statistics are
updated after the epochs of a rollout, so that they are constant within it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from border_cli.agent.action_space import components_of, format_space
from border_cli.agent.advantages import Segments, advantages
from border_cli.agent.densities import (
    ChoiceDensity,
    Density,
    GaussianDensity,
    StateDependentDensity,
)
from border_cli.agent.learning_agent import LearningAgent, norm_metric
from border_cli.agent.on_policy_policies import (
    LOG_PROB,
    UNCLIPPED,
    policy_columns,
    sampling_policy,
)
from border_cli.agent.ppo_config import OnPolicyExploration, PpoConfig
from border_cli.core.interfaces import OnPolicyAgent, PolicyFactory
from border_cli.core.returns import Moments
from border_cli.core.spaces import BoxSpace, EnvSpec, split_mask
from border_cli.core.types import EPISODE, Array, Column, Transitions, Update, map_array
from border_cli.errors import ConfigError
from border_cli.nn.arrays import AnyTensor, library_of
from border_cli.nn.backend import DenseLearnedNetwork, Part
from border_cli.nn.batch import TensorBatch, TensorObs
from border_cli.nn.initial_weights import make_orthogonal
from border_cli.settings.run import AgentConfig
from border_cli.settings.schedule import schedule_of, value_at

ROWS_AT_ONCE = 1024  # rows per forward pass in `Ppo.prepare`
KL_FACTOR = 1.5  # limit of the KL divergence as a multiple of target_kl, as in Spinning Up

# Columns that the agent adds to a rollout for its minibatches. [M] each
PREPARED = ADVANTAGE, TARGET, VALUE, OLD_LOG_PROB = "advantage", "target", "value", "old_log_prob"


class PolicyLoss(NamedTuple):
    """The clipped surrogate loss of a minibatch."""

    loss: AnyTensor  # []
    grad: AnyTensor  # [B]  gradient with respect to the log-probabilities
    approx_kl: AnyTensor  # []  mean of (ratio - 1) - log ratio (Schulman 2020)
    clip_fraction: AnyTensor  # []  fraction of ratios that are clipped


def policy_loss(
    log_prob: AnyTensor,
    old_log_prob: AnyTensor,
    advantage: AnyTensor,
    low: AnyTensor,
    high: AnyTensor,
) -> PolicyLoss:
    """Returns -E[min(ratio A, clip(ratio, low, high) A)], equation 7. [B], [B], [B], [], []"""
    library = library_of(log_prob)
    log_ratio = log_prob - old_log_prob
    ratio = library.exp(log_ratio)
    clipped = ratio.clip(low, high)
    gain, clipped_gain = ratio * advantage, clipped * advantage
    return PolicyLoss(
        loss=-library.minimum(gain, clipped_gain).mean(),
        grad=gain * (gain <= clipped_gain) / -len(gain),  # because d ratio / d log_prob = ratio
        approx_kl=(ratio - log_ratio).mean() - 1,
        clip_fraction=library.mean(ratio != clipped, dtype=ratio.dtype),
    )


class SquaredErrors(NamedTuple):
    """The value loss of a minibatch."""

    loss: AnyTensor  # []
    grad: AnyTensor  # [B]  gradient with respect to the values


def value_loss(
    value: AnyTensor, old_value: AnyTensor, target: AnyTensor, clip_range: float | None
) -> SquaredErrors:
    """Returns E[(V - target)^2], or with `clip_range` the maximum of this squared error and that of
    V clipped around the old values. [B] each"""
    error = value - target
    if clip_range is None:
        return SquaredErrors((error**2).mean(), error * (2 / len(error)))
    library = library_of(value)
    change = value - old_value
    capped = old_value + change.clip(-clip_range, clip_range) - target
    larger = abs(capped) > abs(error)
    grad = library.where(larger, capped * (abs(change) <= clip_range), error)
    largest = library.where(larger, capped, error)
    return SquaredErrors((largest**2).mean(), grad * (2 / len(error)))


def normalize_advantages(advantage: AnyTensor) -> AnyTensor:
    """Normalises to mean 0 and standard deviation 1; returns a single row unchanged. [B]"""
    if len(advantage) == 1:
        return advantage
    centered = advantage - advantage.mean()
    variance = (centered**2).sum() / (len(advantage) - 1)
    return centered / (variance**0.5 + 1e-8)


class Ppo(LearningAgent, OnPolicyAgent):
    """Proximal policy optimization. Owned and called by the learner thread."""

    name: ClassVar[str] = "ppo"
    config: PpoConfig

    def __init__(self, config: PpoConfig, *, spec: EnvSpec, device: str, seed: int) -> None:
        super().__init__(config, spec=spec, device=device, seed=seed)
        self.observes = False  # `finish` updates the statistics with whole rollouts
        self._needs_preparation = (
            False  # `prepare` scales rewards; actions keep the environment's units
        )
        self._is_gsde = config.exploration == OnPolicyExploration.gsde
        self._nvec, self._size = self._resolve_actions()
        shared = config.share_network
        self._is_shared = self.architecture.has_encoder if shared is None else shared
        learned = self._make_networks()
        self._learning_rate = value_at(schedule_of(config.learning_rate), 0, 0.0)
        self.optimizer = self.make_optimizer(
            [*learned.values()],
            self._learning_rate,
            config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        self.register_state(**learned, optimizer=self.optimizer)
        self._pending: list[Moments] = []  # returns of the current rollout, merged in `finish`
        self._set_clip_range(0.0)
        self._losses = self.backend.compile(self.losses)
        self._rollout_metrics: dict[str, float] = {}  # metrics of the rollout

    def _make_networks(self) -> dict[str, Part]:
        """Builds the networks and parameters, and returns them by name."""
        # The last output of a shared network is the value.
        self.policy = self._make_network(self._size + self._is_shared, gain=0.01)
        learned: dict[str, Part] = {"policy": self.policy}
        if not self._is_shared:
            learned["value"] = self.value = self._make_network(1, gain=1.0)
        self.acting_parts["network"] = self.policy
        if self._nvec is None:  # continuous actions
            shape = [self._size]
            if self._is_gsde:
                last = f"mlp.layers.{len(self.config.hidden)}.weight"
                shape = [self.policy.state_dict()[last].shape[1], self._size]
            log_std = np.full(shape, self.config.log_std_init, np.float32)
            self.noise = self.backend.make_parameter("log_std", log_std)
            learned["deviation"] = self.acting_parts["noise"] = self.noise
        return learned

    def _make_network(self, outputs: int, *, gain: float) -> DenseLearnedNetwork:
        if not self.config.orthogonal_init:
            return self.backend.make_network(outputs)
        initialise = partial(
            make_orthogonal,
            rng=self.init_generator,
            gain=gain,
            outputs=min(outputs, self._size),
            # Custom encoders keep their weights.
            prefix="mlp." if self.architecture.target is not None else "",
        )
        return self.backend.make_network(outputs, initialise)

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:
        """Returns the log-probability column and, for a Box, that of the unclipped actions."""
        del config
        return policy_columns(spec)

    def _resolve_actions(self) -> tuple[Sequence[int] | None, int]:
        """Returns the choices of an action (None for a Box) and the number of policy outputs."""
        nvec = components_of(self.spec.action)
        space = self.spec.action
        if nvec is not None:
            if self._is_gsde:
                allowed = f"needs a Box; env.id={self.spec.id} has {format_space(space)}"
                self.config.refuse("exploration", "gsde", allowed)
            return nvec, sum(nvec)
        assert isinstance(space, BoxSpace)
        if not np.issubdtype(np.dtype(space.dtype), np.floating):
            raise ConfigError(
                f"agent=ppo needs discrete actions or a Box of real numbers; env.id={self.spec.id} "
                f"has {format_space(space)}"
            )
        return None, math.prod(space.shape)

    @property
    def policy_factory(self) -> PolicyFactory:
        config, network = self.config, self.acting_network()
        return sampling_policy(
            self.spec, network, gsde=self._is_gsde, sample_freq=config.sample_freq
        )

    def _log_std(self) -> AnyTensor:
        """Returns the logarithms of the standard deviations. [A], or [H, A] for gSDE"""
        return self.noise.state_dict()["log_std"]

    def density(
        self,
        outputs: AnyTensor,
        hidden: AnyTensor | None,
        mask: AnyTensor | None,
        action: AnyTensor,
    ) -> Density:
        """Evaluates actions under the policy. `hidden` is the last hidden layer, for gSDE alone.
        [B, outputs], [B, H], [B, S], [B, K] or [B, A]"""
        outputs = outputs[:, : self._size]
        if self._nvec is None:
            if hidden is not None:
                return StateDependentDensity(outputs, self._log_std(), hidden, action)
            return GaussianDensity(outputs, self._log_std(), action)
        return ChoiceDensity(self._nvec, outputs, mask, action)

    def _predict(self, features: TensorObs) -> tuple[AnyTensor, AnyTensor | None, AnyTensor]:
        """Returns policy outputs, the last hidden layer (for gSDE alone), and values.
        [B, outputs], [B, H], [B, 1]"""
        hidden = None
        if self._is_gsde:
            outputs, hidden, _ = self.policy.forward_with_hidden(features)
        else:
            outputs = self.policy.predict(features)
        value = outputs[:, -1:] if self._is_shared else self.value.predict(features)
        return outputs, hidden, value

    def _features(self, obs: TensorObs) -> TensorObs:
        return obs if self.features.changes_nothing else self.features(obs)

    def _split_obs(self, obs: Array) -> tuple[TensorObs, AnyTensor | None]:
        """Separates observations into network inputs and action mask."""
        mask = None
        if self._has_masks:
            obs, valid = split_mask(obs)
            mask = self.backend.tensor(valid)
        return self._features(self.backend.tensor_obs(obs)), mask

    def _unclipped_actions(self, rows: Transitions) -> AnyTensor:
        """Returns the sampled actions before clipping. [M, K] int64 or [M, A] float32"""
        actions = rows.action if self._nvec is not None else rows.extras[UNCLIPPED]
        return self.backend.tensor(actions.reshape(len(actions), -1))

    def prepare(
        self, rollout: Transitions, *, env_steps: int, done: float
    ) -> Mapping[str, NDArray[np.float32]]:
        config = self.config
        self._set_learning_rate(value_at(schedule_of(config.learning_rate), env_steps, done))
        self._set_clip_range(value_at(schedule_of(config.clip_range), env_steps, done))
        segments = Segments(rollout.extras[EPISODE])
        with self._evaluating():
            results = [self._evaluate(rollout, part) for part in _split_rows(len(rollout))]
            last_value = self._compute_values(
                map_array(lambda array: array[segments.last], rollout.next_obs), len(segments.last)
            )
        value, log_prob = (np.concatenate(parts) for parts in zip(*results, strict=True))
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

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Sets a user's network to `eval()`, as in actors, and to `train()` afterwards."""
        networks: list[Any] = []
        if self.architecture.target is not None:  # no other network has such layers
            networks = [self.policy] if self._is_shared else [self.policy, self.value]
        for network in networks:
            network.eval()
        try:
            yield
        finally:
            for network in networks:
                network.train()

    def _evaluate(
        self, rollout: Transitions, part: slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns values and log-probabilities for a slice of the rollout."""
        features, mask = self._split_obs(_slice_obs(rollout.obs, part))
        outputs, hidden, value = self._predict(features)
        density = self.density(outputs, hidden, mask, self._unclipped_actions(rollout)[part])
        arrays: Any = self.backend.to_arrays([value, density.log_prob])
        return arrays[0][:, 0], arrays[1]

    def _compute_values(self, obs: Array, rows: int) -> NDArray[np.float32]:
        """Returns the values of observations. [M, …] -> [M]"""
        inputs = (self._split_obs(_slice_obs(obs, part))[0] for part in _split_rows(rows))
        values = [self._predict(features)[2][:, 0] for features in inputs]
        return np.concatenate(self.backend.to_arrays(values))

    def learn(self, batch: TensorBatch) -> Update | None:
        config, columns = self.config, batch.extras
        assert columns is not None
        features = self._features(batch.obs)
        hidden = None
        if self._is_gsde:
            outputs, hidden, cache = self.policy.forward_with_hidden(features)
        else:
            outputs, cache = self.policy.forward_with_cache(features)
        value, value_cache = outputs[:, -1:], cache
        if not self._is_shared:
            value, value_cache = self.value.forward_with_cache(features)
        action = batch.action if self._nvec is not None else columns[UNCLIPPED]
        density = self.density(outputs, hidden, batch.mask, action)
        surrogate, squared_errors = self._losses(density.log_prob, value, columns, self._range)
        if config.target_kl is not None and surrogate.approx_kl > KL_FACTOR * config.target_kl:
            return None
        grad_output, *grad_std = density.backward(surrogate.grad, -config.ent_coef / len(action))
        grad_value = config.value_coef * squared_errors.grad[:, None]
        if self._is_shared:
            both = library_of(outputs).concatenate([grad_output, grad_value], 1)
            gradient = self.policy.backward(cache, both)
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
        log_prob: AnyTensor,
        value: AnyTensor,
        columns: Mapping[str, AnyTensor],
        bounds: tuple[AnyTensor, AnyTensor],
    ) -> tuple[PolicyLoss, SquaredErrors]:
        """Returns the policy loss, with ratios clipped to `bounds`, and the value loss."""
        advantage, target, old_value, old_log_prob = (columns[name][:, 0] for name in PREPARED)
        if self.config.normalize_advantage:
            advantage = normalize_advantages(advantage)
        surrogate = policy_loss(log_prob, old_log_prob, advantage, *bounds)
        clip_range = self.config.value_clip_range
        return surrogate, value_loss(value[:, 0], old_value, target, clip_range)

    @property
    def batch_columns(self) -> Sequence[Column]:
        return [
            *super().batch_columns,
            *((name, np.dtype(np.float32), ()) for name in PREPARED),
        ]

    def _set_clip_range(self, value: float) -> None:
        self._clip_range = value
        # Arrays, because torch would recompile for each new number.
        bounds = np.array([1 - value, 1 + value], np.float32)
        low, high = self.backend.tensor(bounds)
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
