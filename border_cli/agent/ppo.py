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
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, SupportsFloat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from border_cli.agent.action_space import components_of, name_of
from border_cli.agent.advantages import Segments, advantages
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
from border_cli.nn.distributions import normal_log_density
from border_cli.nn.features import FeatureTensors, TensorObs
from border_cli.nn.network import Network
from border_cli.nn.tensor_batch import TensorBatch, map_tensors, masked, tensor_obs
from border_cli.settings.run import AgentConfig
from border_cli.settings.schedule import schedule_of, value_at

ROWS_AT_ONCE = 1024  # of a rollout, in the pass before its epochs
LOWEST = -1e4  # in place of the logarithm of 0, which times 0 is no number
KL_FACTOR = 1.5  # times target_kl: beyond it a rollout is dropped; of OpenAI's spinningup
LOG_ROOT_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)

# Columns that the agent computes for the minibatches of a rollout. [M] each
PREPARED = ADVANTAGE, TARGET, VALUE, OLD_LOG_PROB = "advantage", "target", "value", "old_log_prob"


class PolicyLoss(NamedTuple):
    """The clipped surrogate of a minibatch. [] each"""

    loss: Tensor
    approx_kl: Tensor  # mean of (ratio - 1) - log ratio (Schulman 2020)
    clip_fraction: Tensor  # share of ratios beyond the range


def policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip_range: Tensor
) -> PolicyLoss:
    """-E[min(ratio A, clip(ratio, 1 - range, 1 + range) A)], equation 7. [B] each"""
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip_range).float().mean()
    return PolicyLoss(loss, approx_kl, clip_fraction)


def value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, clip_range: float | None
) -> Tensor:
    """E[(V - target)^2]; with a range, of the larger error, of V or of V clipped around the old
    one. [B] each -> []"""
    error = (value - target).square()
    if clip_range is not None:
        near = old_value + (value - old_value).clamp(-clip_range, clip_range)
        error = torch.maximum(error, (near - target).square())
    return error.mean()


def normalised(advantage: Tensor) -> Tensor:
    """With mean 0 and deviation 1; of a single row as it is. [B]"""
    if len(advantage) == 1:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


class Judgement(NamedTuple):
    """What the networks say of rows and their actions."""

    value: Tensor  # [B]
    log_prob: Tensor  # [B]
    entropy: Tensor  # [B]


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
        outputs = self._size + self._shares  # the value is the last one
        self.policy = Network(self.architecture, outputs, self.init_generator)
        networks = [self.policy]
        if not self._shares:
            self.value = Network(self.architecture, 1, self.init_generator)
            networks.append(self.value)
        if config.orthogonal_init:
            self._initialise()
        if self._choices is None:
            self._log_std = nn.Parameter(torch.full((self._size,), config.log_std_init))
            self.policy.register_parameter("log_std", self._log_std)
        for network in networks:
            network.to(self.device)
        self._learning_rate = value_at(schedule_of(config.learning_rate), 0, 0.0)
        self.optimizer = self.make_optimizer(
            nn.ModuleList(networks),
            self._learning_rate,
            config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        separate = {} if self._shares else {"value": self.value}
        self.register_state(policy=self.policy, **separate, optimizer=self.optimizer)
        self.acting_modules["network"] = self.policy
        self._waiting: list[Moments] = []  # running returns of the rollout that is collected
        self._clip_range = torch.zeros(())  # of this rollout
        self._losses = self.compiled(self.losses)
        self._of_rollout: dict[str, float] = {}  # metrics

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

    def _initialise(self) -> None:
        """Orthogonal weights and no biases, but in a network of the user's own."""
        own = self.architecture.target is not None
        networks = [self.policy] if self._shares else [self.policy, self.value]
        for network in networks:
            for module in (network.mlp if own else network).modules():
                weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
                if isinstance(weight, Tensor) and weight.ndim >= 2:
                    _orthogonal(weight, math.sqrt(2), self.init_generator)
                    if isinstance(bias, Tensor):
                        nn.init.zeros_(bias)
            last = network.mlp.memory[-1].weight
            _orthogonal(last, 1.0, self.init_generator)
        _orthogonal(self.policy.mlp.memory[-1].weight[: self._size], 0.01, self.init_generator)

    @property
    def policy_factory(self) -> PolicyFactory:
        return sampling_policy(self.spec, self.acting_network())

    def evaluated(self, features: FeatureTensors, mask: Tensor | None, action: Tensor) -> Judgement:
        """Values, log-probabilities and entropies. [B, …], [B, S], [B, K] or [B, A]"""
        outputs = self.policy(features)
        value = (outputs[:, -1:] if self._shares else self.value(features)).squeeze(1)
        outputs = outputs[:, : self._size]
        if self._choices is None:
            log_std = self._log_std
            standardised = (action - outputs) * torch.exp(-log_std)
            log_prob = normal_log_density(standardised, log_std).sum(1)
            entropy = (log_std + LOG_ROOT_2_PI_E).sum().expand(len(action))
            return Judgement(value, log_prob, entropy)
        log = self._choices.log_softmax(masked(outputs, mask))  # [B, S]
        log_prob = log.gather(1, self._choices.columns(action)).sum(1)
        return Judgement(value, log_prob, -(log.exp() * log.clamp(min=LOWEST)).sum(1))

    def _values(self, features: FeatureTensors) -> Tensor:
        """[B, …] -> [B]"""
        outputs = self.policy(features)[:, -1:] if self._shares else self.value(features)
        values: Tensor = outputs.squeeze(1)
        return values

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
        found = [self._look_at(rollout, part) for part in _slices(len(rollout))]
        value, log_prob = (np.concatenate(each) for each in zip(*found, strict=True))
        successors = map_array(lambda array: array[segments.last], rollout.next_obs)
        last_value = np.concatenate(
            [
                self._values(self._seen(_part(successors, part))[0]).cpu().numpy()
                for part in _slices(len(segments.last))
            ]
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
            "clip_range": float(self._clip_range),
        }
        columns = {ADVANTAGE: advantage, TARGET: target, VALUE: value, OLD_LOG_PROB: log_prob}
        return {name: column.astype(np.float32) for name, column in columns.items()}

    def _look_at(
        self, rollout: Transitions, part: slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Values and log-probabilities of some rows of a rollout."""
        features, mask = self._seen(_part(rollout.obs, part))
        found = self.evaluated(features, mask, self._drawn(rollout)[part])
        return found.value.cpu().numpy(), found.log_prob.cpu().numpy()

    def learn(self, batch: TensorBatch) -> Update | None:
        config, columns = self.config, batch.extras
        assert columns is not None
        action = batch.action if self._choices is not None else columns[UNCLIPPED]
        of_policy, of_value, entropy = self._losses(
            self._features(batch.obs), batch.mask, action, columns, self._clip_range
        )
        if config.target_kl is not None and of_policy.approx_kl > KL_FACTOR * config.target_kl:
            return None
        loss = of_policy.loss + config.value_coef * of_value - config.ent_coef * entropy
        norm = self.optimizer.minimize(loss)
        metrics: dict[str, SupportsFloat] = {
            "policy_loss": of_policy.loss.detach(),
            "value_loss": of_value.detach(),
            "entropy": entropy.detach(),
            "approx_kl": of_policy.approx_kl,
            "clip_fraction": of_policy.clip_fraction,
            **norm_metric(norm, "grad_norm"),
            **self._of_rollout,
        }
        return Update(metrics=metrics)

    def losses(
        self,
        features: FeatureTensors,
        mask: Tensor | None,
        action: Tensor,
        columns: Mapping[str, Tensor],
        clip_range: Tensor,
    ) -> tuple[PolicyLoss, Tensor, Tensor]:
        """Of the policy, of the values, and the mean entropy, which is to rise. [] each"""
        config = self.config
        advantage, target, old_value, old_log_prob = (columns[name].squeeze(1) for name in PREPARED)
        if config.normalize_advantage:
            advantage = normalised(advantage)
        found = self.evaluated(features, mask, action)
        of_policy = policy_loss(found.log_prob, old_log_prob, advantage, clip_range)
        of_value = value_loss(found.value, old_value, target, config.value_clip_range)
        return of_policy, of_value, found.entropy.mean()

    @property
    def batch_columns(self) -> Sequence[Column]:
        return [
            *super().batch_columns,
            *((name, np.dtype(np.float32), ()) for name in PREPARED),
        ]

    def _set_clip_range(self, value: float) -> None:
        # A tensor, because torch compiles anew for each number.
        self._clip_range = torch.tensor(value, device=self.device)

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
            "clip_range": float(self._clip_range),
            "learning_rate": self._learning_rate,
            "of_rollout": dict(self._of_rollout),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._waiting = [Moments(int(count), *rest) for count, *rest in state["waiting"]]
        self._set_clip_range(float(state["clip_range"]))
        self._set_learning_rate(float(state["learning_rate"]))
        self._of_rollout = dict(state["of_rollout"])


@torch.no_grad()
def _orthogonal(weight: Tensor, gain: float, generator: torch.Generator) -> None:
    nn.init.orthogonal_(weight, gain, generator=generator)


def _slices(rows: int) -> Iterator[slice]:
    edges = [*range(0, rows, ROWS_AT_ONCE), rows]
    return (slice(*each) for each in pairwise(edges))


def _part(obs: Array, part: slice) -> Array:
    return map_array(lambda array: array[part], obs)
