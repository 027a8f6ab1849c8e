"""The agents by name, and their settings. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.agent.bc_settings import BcConfig
from border_cli.agent.deterministic_settings import Td3BcConfig, Td3Config
from border_cli.agent.offline_settings import AwacConfig, CqlConfig, IqlConfig
from border_cli.agent.quantile_settings import IqnConfig, QrdqnConfig
from border_cli.agent.sac_settings import SacConfig, TqcConfig
from border_cli.agent.settings import LearnerConfig, Loss, MatmulPrecision
from border_cli.agent.value_settings import DqnConfig, Exploration
from border_cli.core.config import AgentConfig
from border_cli.registry import AGENTS

__all__ = [
    "AwacConfig",
    "BcConfig",
    "CqlConfig",
    "DqnConfig",
    "Exploration",
    "IqlConfig",
    "IqnConfig",
    "LearnerConfig",
    "Loss",
    "MatmulPrecision",
    "QrdqnConfig",
    "RandomConfig",
    "SacConfig",
    "Td3BcConfig",
    "Td3Config",
    "TqcConfig",
]


@dataclass(kw_only=True)
class RandomConfig(AgentConfig):
    """Uniformly random actions, no learning: a baseline, and a quick test of an environment."""

    gives_priorities: ClassVar[bool] = False


AGENTS.register("awac", AwacConfig, "border_cli.agent.awac:Awac")
AGENTS.register("cql", CqlConfig, "border_cli.agent.cql:Cql")
AGENTS.register("dqn", DqnConfig, "border_cli.agent.dqn:Dqn")
AGENTS.register("iql", IqlConfig, "border_cli.agent.iql:Iql")
AGENTS.register("iqn", IqnConfig, "border_cli.agent.iqn:Iqn")
AGENTS.register("qrdqn", QrdqnConfig, "border_cli.agent.qrdqn:Qrdqn")
AGENTS.register("random", RandomConfig, "border_cli.agent.random:RandomAgent")
AGENTS.register("sac", SacConfig, "border_cli.agent.sac:Sac")
AGENTS.register("td3", Td3Config, "border_cli.agent.td3:Td3")
AGENTS.register("td3_bc", Td3BcConfig, "border_cli.agent.td3_bc:Td3Bc")
AGENTS.register("bc", BcConfig, "border_cli.agent.bc:Bc")
AGENTS.register("tqc", TqcConfig, "border_cli.agent.tqc:Tqc")
