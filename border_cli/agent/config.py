"""Settings of the agents. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.core.config import AgentConfig
from border_cli.core.settings import setting
from border_cli.registry import AGENTS


class Exploration(StrEnum):
    """How a value-based agent tries actions."""

    epsilon_greedy = "epsilon_greedy"
    softmax = "softmax"


class Loss(StrEnum):
    """What is minimised of a TD error."""

    huber = "huber"
    mse = "mse"


class MatmulPrecision(StrEnum):
    """How exact the products of float32 matrices are."""

    highest = "highest"
    high = "high"
    medium = "medium"


@dataclass(kw_only=True)
class LearnerConfig(AgentConfig):
    """How an agent that learns with torch computes its updates; acting is not touched."""

    num_threads: int = setting(
        1, "torch's threads for updates; more pay off in large networks and batches", low=1
    )
    matmul_precision: MatmulPrecision = setting(
        MatmulPrecision.highest,
        "of float32 products: highest; high may use TF32, medium bfloat16, where the processor or "
        "GPU has it",
    )
    compile: bool = setting(
        False,
        "torch.compile of the update, with CUDA graphs on a GPU; the start takes seconds longer",
    )


@dataclass(kw_only=True)
class DqnConfig(LearnerConfig):
    """Deep Q-network; conf/tuned/dqn_<env>.yaml holds what an env needs."""

    hidden: list[int] = setting([256, 256], "units of each hidden layer of the Q-network", low=1)
    learning_rate: float = setting(5e-4, "of Adam", above=0)
    max_grad_norm: float | None = setting(10.0, "clips the gradient's norm; null: off", above=0)
    double: bool = setting(False, "the online network chooses the next action (double Q-learning)")
    loss: Loss = setting(Loss.huber, "of the TD error: huber (threshold 1) or mse")
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
class RandomConfig(AgentConfig):
    """Acts uniformly at random and learns nothing: the baseline, and a probe of an environment."""


AGENTS.register("dqn", DqnConfig, "border_cli.agent.dqn:Dqn")
AGENTS.register("random", RandomConfig, "border_cli.agent.random:RandomAgent")
