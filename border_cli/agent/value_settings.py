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


@dataclass(kw_only=True)
class ValueConfig(NetworkConfig):
    """What agents that learn action values share."""

    learning_rate: float = setting(5e-4, "of Adam", above=0)
    max_grad_norm: float | None = setting(10.0, "clips the gradient's norm; null: off", above=0)
    target_interval: int = setting(
        500, "optimisation steps between updates of the target network", low=1
    )
    tau: float = setting(
        1.0, "target := tau * online + (1 - tau) * target; 1 copies", above=0, high=1
    )
    exploration: Exploration = setting(
        Exploration.epsilon_greedy, "epsilon_greedy, or softmax over the Q-values"
    )
    epsilon_start: float = setting(1.0, "epsilon at env step 0", low=0, high=1)
    epsilon_final: float = setting(0.05, "epsilon from env step epsilon_steps on", low=0, high=1)
    epsilon_steps: int = setting(
        10_000, "env steps (of all actors) over which epsilon falls linearly", low=1
    )
    temperature: float = setting(1.0, "of softmax: P(a) ~ exp(Q(a) / temperature)", above=0)


@dataclass(kw_only=True)
class DqnConfig(ValueConfig):
    """Deep Q-network; conf/tuned/dqn_<env>.yaml holds what an env needs."""

    double: bool = setting(False, "the online network chooses the next action (double Q-learning)")
    loss: Loss = setting(Loss.huber, "of the TD error: huber (threshold 1) or mse")
