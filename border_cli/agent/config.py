"""The agents by name, and their settings. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.agent.settings import LearnerConfig, Loss, MatmulPrecision
from border_cli.agent.value_settings import DqnConfig, Exploration
from border_cli.core.config import AgentConfig
from border_cli.registry import AGENTS

__all__ = [
    "DqnConfig",
    "Exploration",
    "LearnerConfig",
    "Loss",
    "MatmulPrecision",
    "RandomConfig",
]


@dataclass(kw_only=True)
class RandomConfig(AgentConfig):
    """Acts uniformly at random and learns nothing: the baseline, and a probe of an environment."""


AGENTS.register("dqn", DqnConfig, "border_cli.agent.dqn:Dqn")
AGENTS.register("random", RandomConfig, "border_cli.agent.random:RandomAgent")
