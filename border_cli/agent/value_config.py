"""Settings of agents that learn action values. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, ClassVar

from border_cli.agent.learner_config import LearnerConfig, Loss
from border_cli.settings.base import setting
from border_cli.settings.schedule import ENV_STEPS, UPDATES, Schedule, Scheduled, schedule_of


class Exploration(StrEnum):
    """Exploration strategies of value-based agents."""

    epsilon_greedy = "epsilon_greedy"
    softmax = "softmax"
    greedy = "greedy"


@dataclass(kw_only=True)
class ValueConfig(LearnerConfig):
    """Settings common to all agents that learn action values."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete")
    exploration_settings: ClassVar[tuple[str, ...]] = (
        "exploration",
        "epsilon",
        "temperature",
    )

    double: bool = setting(True, "double Q-learning: the online network chooses the next action")
    learning_rate: Scheduled = setting(
        5e-4, "learning rate", above=0, counter=UPDATES, may_change=True
    )
    adam_epsilon: float = setting(1e-8, "Adam epsilon; up to 0.01 / 32 in the papers", above=0)
    max_grad_norm: float | None = setting(
        10.0, "clips the gradient norm to this value; null disables clipping", above=0
    )
    target_interval: int = setting(1, "updates between target network updates", low=1)
    tau: float = setting(
        0.005,
        "Polyak averaging: target = tau * online + (1 - tau) * target; 1 copies the weights",
        above=0,
        high=1,
    )
    exploration: Exploration = setting(
        Exploration.epsilon_greedy,
        "exploration strategy: epsilon_greedy, softmax over the Q-values, or greedy (for noisy "
        "networks)",
    )
    epsilon: Scheduled = setting(
        {"initial": 1.0, "final": 0.05, "kind": "linear", "steps": 10_000},
        "probability of a random action; steps are counted over all actors",
        low=0,
        high=1,
        counter=ENV_STEPS,
    )
    temperature: Scheduled = setting(
        1.0,
        "softmax temperature: P(a) ~ exp(Q(a) / temperature)",
        above=0,
        counter=ENV_STEPS,
    )

    max_joint_actions: int = setting(
        1024,
        "maximum number of joint actions (the product of the choices) of a MultiDiscrete or "
        "MultiBinary space; the agent learns a value for each of them",
        low=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exploration != Exploration.softmax:
            self.refuse_beside(["temperature"], "needs agent.exploration=softmax")
        # Schedules are allowed, because they may come from a file of tuned settings.
        is_constant = not isinstance(self.epsilon, Mapping)
        if self.exploration != Exploration.epsilon_greedy and is_constant:
            self.refuse("epsilon", self.epsilon, "needs agent.exploration=epsilon_greedy")
        if self.exploration == Exploration.greedy and not self.explores_by_weights:
            self.refuse(
                "exploration",
                str(self.exploration),
                "does not explore without noisy networks (allowed: epsilon_greedy, softmax; or "
                "greedy with agent=dqn agent.noisy=true)",
            )

    @property
    def exploration_schedule(self) -> float | Schedule:
        """Schedule of epsilon, or of the temperature with softmax exploration."""
        softmax = self.exploration == Exploration.softmax
        return schedule_of(self.temperature if softmax else self.epsilon)

    @property
    def schedules(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """Schedules in use, without that of epsilon if exploration is not epsilon-greedy."""
        schedules = super().schedules
        if self.exploration != Exploration.epsilon_greedy:
            schedules.pop("epsilon", None)
        return schedules

    @property
    def explores_by_weights(self) -> bool:
        """True if noise in the weights provides exploration."""
        return False


@dataclass(kw_only=True)
class DqnConfig(ValueConfig):
    """Deep Q-network (DQN); see conf/tuned/dqn_<env>.yaml for tuned settings."""

    numpy_networks: ClassVar[bool] = True

    loss: Loss = setting(
        Loss.huber,
        "loss of the TD error: huber (threshold 1) or mse; unused if num_atoms > 1",
    )
    dueling: bool = setting(
        False,
        "uses a dueling network with separate streams for value and advantages, each with its own "
        "last hidden layer",
    )
    noisy: bool = setting(
        False,
        "uses a noisy network with learned noise in the weights of all dense layers; combine with "
        "agent.exploration=greedy",
    )
    noisy_std: float = setting(
        0.5, "initial noise of a noisy network (sigma_0), as a multiple of inputs ** -0.5", above=0
    )
    num_atoms: int = setting(
        1,
        "atoms of the return distribution; 1 learns only the mean, 51 is C51",
        low=1,
        takes_memory=True,
    )
    v_min: float = setting(-10.0, "return of the lowest atom, if num_atoms > 1")
    v_max: float = setting(10.0, "return of the highest atom, if num_atoms > 1")
    conservative_weight: float = setting(
        0.0, "weight of logsumexp Q(s, ·) - Q(s, a) in the loss (conservative Q-learning)", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categorical and self.v_min >= self.v_max:
            self.refuse("v_max", self.v_max, f"must be above agent.v_min ({self.v_min:g})")
        if self.categorical and self.loss != Loss.huber:
            allowed = f"is for scalar Q only; unused with agent.num_atoms={self.num_atoms}"
            self.refuse("loss", str(self.loss), allowed)

    @property
    def semantic_settings(self) -> dict[str, str | float]:
        atoms = {"v_min": self.v_min, "v_max": self.v_max} if self.categorical else {}
        return super().semantic_settings | atoms

    @property
    def plain(self) -> bool:
        """True if the network is neither dueling nor noisy."""
        return not self.dueling and not self.noisy

    @property
    def categorical(self) -> bool:
        """True if a distribution of the return is learned instead of its mean."""
        return self.num_atoms > 1

    @property
    def explores_by_weights(self) -> bool:
        return self.noisy


@dataclass(kw_only=True)
class QuantileConfig(ValueConfig):
    """Settings common to all agents that learn quantiles of the return."""

    kappa: float = setting(
        1.0,
        "threshold of the quantile Huber loss, in units of reward; 0 is the quantile regression "
        "loss, which learns exact quantiles",
        low=0,
    )
    risk_low: float = setting(
        0.0, "lower end of the quantile fractions whose mean ranks the actions", low=0, high=1
    )
    risk_high: float = setting(
        1.0,
        "upper end of these fractions; 0 to 1 is risk-neutral, 0 to 0.25 risk-averse (CVaR), "
        "0.75 to 1 risk-seeking",
        low=0,
        high=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.risk_low >= self.risk_high:
            allowed = f"must be above agent.risk_low={self.risk_low:g}"
            self.refuse("risk_high", self.risk_high, allowed)


@dataclass(kw_only=True)
class QrdqnConfig(QuantileConfig):
    """QR-DQN; see conf/tuned/qrdqn_<env>.yaml for tuned settings."""

    numpy_networks: ClassVar[bool] = True

    num_quantiles: int = setting(
        50, "quantiles per action; 200 in the paper", low=1, takes_memory=True
    )

    @property
    def fractions(self) -> list[float]:
        """Quantile fractions, the midpoints of equal parts of [0, 1]. [num_quantiles]"""
        return midpoints(self.num_quantiles)

    @property
    def mean_weights(self) -> list[float]:
        """Weights of the quantiles in the mean that ranks actions; they sum to 1. [num_quantiles]

        Each quantile represents its whole part of [0, 1], so the risk range is matched exactly.
        """
        edges = [i / self.num_quantiles for i in range(self.num_quantiles + 1)]
        overlaps = [
            max(0.0, min(high, self.risk_high) - max(low, self.risk_low))
            for low, high in pairwise(edges)
        ]
        return [overlap / sum(overlaps) for overlap in overlaps]


@dataclass(kw_only=True)
class IqnConfig(QuantileConfig):
    """Implicit quantile networks (IQN); see conf/tuned/iqn_<env>.yaml for tuned settings."""

    embedding_size: int = setting(
        64, "cosine features of a quantile fraction", low=1, takes_memory=True
    )
    num_quantiles_online: int = setting(
        8,
        "quantile fractions drawn per transition for Q(s, a) (N; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_target: int = setting(
        8,
        "quantile fractions drawn per transition for the target (N'; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_acting: int = setting(
        32,
        "quantile fractions averaged to rank the actions (K)",
        low=1,
        takes_memory=True,
    )

    @property
    def fractions(self) -> list[float]:
        """Quantile fractions whose mean ranks the actions. [num_quantiles_acting]"""
        return midpoints(self.num_quantiles_acting, self.risk_low, self.risk_high)


def midpoints(count: int, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Returns the midpoints of `count` equal parts of a range."""
    return [low + (high - low) * (i + 0.5) / count for i in range(count)]
