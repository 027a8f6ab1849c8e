"""Settings of the agents that learn action values. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.agent.settings import Loss, NetworkConfig
from border_cli.core.settings import setting


class Exploration(StrEnum):
    """How a value-based agent tries actions."""

    epsilon_greedy = "epsilon_greedy"
    softmax = "softmax"
    greedy = "greedy"


@dataclass(kw_only=True)
class ValueConfig(NetworkConfig):
    """Settings that every agent with action values has."""

    actions: ClassVar[tuple[str, ...]] = ("Discrete",)

    double: bool = setting(True, "double Q-learning: the online network chooses the next action")
    learning_rate: float = setting(5e-4, "Adam learning rate", above=0)
    adam_epsilon: float = setting(1e-8, "Adam epsilon; up to 0.01 / 32 in the papers", above=0)
    max_grad_norm: float | None = setting(
        10.0, "clips the gradient norm to this value; null: no clipping", above=0
    )
    target_interval: int = setting(1, "updates between target network updates", low=1)
    tau: float = setting(
        0.005,
        "Polyak averaging: target = tau * online + (1 - tau) * target; 1: hard copy",
        above=0,
        high=1,
    )
    exploration: Exploration = setting(
        Exploration.epsilon_greedy,
        "epsilon_greedy; softmax over the Q-values; or greedy, for noisy networks",
    )
    epsilon_start: float = setting(1.0, "epsilon at env step 0", low=0, high=1)
    epsilon_final: float = setting(0.05, "epsilon from env step epsilon_steps on", low=0, high=1)
    epsilon_steps: int = setting(
        10_000, "env steps, summed over all actors, over which epsilon is annealed linearly", low=1
    )
    temperature: float = setting(
        1.0, "softmax temperature: P(a) ~ exp(Q(a) / temperature)", above=0
    )

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
    """Deep Q-network; conf/tuned/dqn_<env>.yaml has tuned settings per environment."""

    loss: Loss = setting(
        Loss.huber,
        "loss of the TD error: huber (threshold 1) or mse; scalar Q only, unused when num_atoms "
        "> 1",
    )
    dueling: bool = setting(
        False,
        "dueling network: separate streams for value and advantages, each with its own last "
        "hidden layer",
    )
    noisy: bool = setting(
        False,
        "noisy network: learned noise in the weights of all dense layers; use "
        "agent.exploration=greedy with it",
    )
    noisy_std: float = setting(
        0.5, "initial noise of a noisy network (sigma_0), as a multiple of inputs ** -0.5", above=0
    )
    num_atoms: int = setting(
        1,
        "atoms of the return distribution; 1: learns only the mean, 51: C51",
        low=1,
        takes_memory=True,
    )
    v_min: float = setting(-10.0, "return of the lowest atom, when num_atoms > 1")
    v_max: float = setting(10.0, "return of the highest atom, when num_atoms > 1")
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
