"""Settings of the agents that learn action values. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.agent.settings import Loss, NetworkConfig
from border_cli.core.settings import setting


class Exploration(StrEnum):
    """How a value-based agent tries actions."""

    epsilon_greedy = "epsilon_greedy"
    softmax = "softmax"
    greedy = "greedy"


@dataclass(kw_only=True)
class ValueConfig(NetworkConfig):
    """What agents that learn action values share."""

    double: bool = setting(True, "the online network chooses the next action (double Q-learning)")
    learning_rate: float = setting(5e-4, "of Adam", above=0)
    adam_epsilon: float = setting(1e-8, "of Adam; the papers have up to 0.01 / 32", above=0)
    max_grad_norm: float | None = setting(10.0, "clips the gradient's norm; null: off", above=0)
    target_interval: int = setting(
        1, "optimisation steps between updates of the target network", low=1
    )
    tau: float = setting(
        0.005, "target := tau * online + (1 - tau) * target; 1 copies", above=0, high=1
    )
    exploration: Exploration = setting(
        Exploration.epsilon_greedy,
        "epsilon_greedy; softmax over the Q-values; or greedy, where the weights themselves are "
        "noisy",
    )
    epsilon_start: float = setting(1.0, "epsilon at env step 0", low=0, high=1)
    epsilon_final: float = setting(0.05, "epsilon from env step epsilon_steps on", low=0, high=1)
    epsilon_steps: int = setting(
        10_000, "env steps (of all actors) over which epsilon falls linearly", low=1
    )
    temperature: float = setting(1.0, "of softmax: P(a) ~ exp(Q(a) / temperature)", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exploration != Exploration.softmax:
            self.refuse_beside(["temperature"], "needs agent.exploration=softmax")
        if self.exploration == Exploration.greedy and not self.explores_by_weights:
            self.refuse(
                "exploration",
                str(self.exploration),
                "does not explore without noisy networks (allowed: epsilon_greedy, softmax; or "
                "greedy with agent=dqn agent.noisy=true)",
            )

    @property
    def explores_by_weights(self) -> bool:
        """Whether noise in the weights tries actions, so that nothing else need do so."""
        return False


@dataclass(kw_only=True)
class DqnConfig(ValueConfig):
    """Deep Q-network; conf/tuned/dqn_<env>.yaml holds what an env needs."""

    loss: Loss = setting(
        Loss.huber, "of the TD error: huber (threshold 1) or mse; one of scalars, not of num_atoms"
    )
    dueling: bool = setting(
        False, "value and advantages in streams of their own, each with the last hidden layer"
    )
    noisy: bool = setting(
        False, "noise in the weights of all dense layers, learned; agent.exploration=greedy fits"
    )
    noisy_std: float = setting(
        0.5, "of noisy at the start, where 1 is a deviation of inputs ** -0.5 (sigma_0)", above=0
    )
    num_atoms: int = setting(
        1,
        "of the distribution of the return; 1 learns its mean only, 51 is C51",
        low=1,
        takes_memory=True,
    )
    v_min: float = setting(-10.0, "return of the first of two or more atoms")
    v_max: float = setting(10.0, "return of the last of two or more atoms")
    conservative_weight: float = setting(
        0.0, "of logsumexp Q(s, ·) - Q(s, a) beside the loss (conservative Q-learning)", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categorical and self.v_min >= self.v_max:
            self.refuse("v_max", self.v_max, f"must be above agent.v_min ({self.v_min:g})")
        if self.categorical and self.loss != Loss.huber:
            allowed = f"is for scalar Q only; unused with agent.num_atoms={self.num_atoms}"
            self.refuse("loss", str(self.loss), allowed)

    @property
    def told_by_no_weight(self) -> dict[str, str | float]:
        atoms = {"v_min": self.v_min, "v_max": self.v_max} if self.categorical else {}
        return super().told_by_no_weight | atoms

    @property
    def plain(self) -> bool:
        """Whether the network is one stream of layers without noise."""
        return not self.dueling and not self.noisy

    @property
    def categorical(self) -> bool:
        """Whether a distribution of the return is learned, and not its mean alone."""
        return self.num_atoms > 1

    @property
    def explores_by_weights(self) -> bool:
        return self.noisy
