"""The registry of agents and their settings. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.agent.actor_critic_config import (
    ActorCriticConfig,
    ActorCritics,
    AwacConfig,
    CqlConfig,
    DiscreteSacConfig,
    IqlConfig,
    Noise,
    SacConfig,
    SoftConfig,
    Td3BcConfig,
    Td3Config,
    TqcConfig,
)
from border_cli.agent.learner_config import LearnerConfig, Loss
from border_cli.agent.ppo_config import PpoConfig
from border_cli.agent.value_config import (
    DqnConfig,
    Exploration,
    IqnConfig,
    QrdqnConfig,
    ValueConfig,
)
from border_cli.registry import AGENTS
from border_cli.settings.base import setting
from border_cli.settings.networks import MatmulPrecision
from border_cli.settings.run import AgentConfig
from border_cli.settings.schedule import UPDATES, Scheduled

__all__ = [
    "ActorCriticConfig",
    "ActorCritics",
    "AwacConfig",
    "BcConfig",
    "CqlConfig",
    "DiscreteSacConfig",
    "DqnConfig",
    "Exploration",
    "IqlConfig",
    "IqnConfig",
    "LearnerConfig",
    "Loss",
    "MatmulPrecision",
    "Noise",
    "PpoConfig",
    "QrdqnConfig",
    "RandomConfig",
    "SacConfig",
    "SoftConfig",
    "Td3BcConfig",
    "Td3Config",
    "TqcConfig",
    "ValueConfig",
]


@dataclass(kw_only=True)
class RandomConfig(AgentConfig):
    """Uniformly random actions without learning, as a baseline or to try out an environment."""

    gives_priorities: ClassVar[bool] = False
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete", "Box")


@dataclass(kw_only=True)
class BcConfig(LearnerConfig):
    """Behaviour cloning, which imitates the actions in the data."""

    gives_priorities: ClassVar[bool] = False
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "MultiDiscrete", "Box")

    batch_size: int = setting(256, "transitions per update", low=1)
    learning_rate: Scheduled = setting(
        3e-4, "learning rate", above=0, counter=UPDATES, may_change=True
    )
    max_grad_norm: float | None = setting(
        None, "clips the gradient norm to this value; null disables clipping", above=0
    )
    stochastic: bool = setting(
        False,
        "learns a Gaussian by maximum likelihood instead of a single action by squared error; "
        "for continuous actions only",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize_reward:
            self.refuse("normalize_reward", True, "must be false: cloning does not use rewards")


AGENTS.register("awac", AwacConfig, "border_cli.agent.awac:Awac")
AGENTS.register("cql", CqlConfig, "border_cli.agent.cql:Cql")
AGENTS.register("discrete_sac", DiscreteSacConfig, "border_cli.agent.discrete_sac:DiscreteSac")
AGENTS.register(
    "dqn", DqnConfig, "border_cli.agent.dqn:Dqn", presets=("der", "discrete_cql", "rainbow")
)
AGENTS.register("iql", IqlConfig, "border_cli.agent.iql:Iql")
AGENTS.register("iqn", IqnConfig, "border_cli.agent.iqn:Iqn")
AGENTS.register("ppo", PpoConfig, "border_cli.agent.ppo:Ppo", presets=("a2c",))
AGENTS.register("qrdqn", QrdqnConfig, "border_cli.agent.qrdqn:Qrdqn")
AGENTS.register("random", RandomConfig, "border_cli.agent.random:RandomAgent")
AGENTS.register("sac", SacConfig, "border_cli.agent.sac:Sac", presets=("droq", "redq"))
AGENTS.register("td3", Td3Config, "border_cli.agent.td3:Td3", presets=("ddpg",))
AGENTS.register("td3_bc", Td3BcConfig, "border_cli.agent.td3_bc:Td3Bc")
AGENTS.register("bc", BcConfig, "border_cli.agent.bc:Bc")
AGENTS.register("tqc", TqcConfig, "border_cli.agent.tqc:Tqc")
