"""Settings of the agents whose actor puts out one action. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.core.settings import setting


class Noise(StrEnum):
    """How the noise of one step hangs together with that of the next."""

    gaussian = "gaussian"
    ornstein_uhlenbeck = "ornstein_uhlenbeck"


@dataclass(kw_only=True)
class Td3Config(ActorCriticConfig):
    """Twin delayed deep deterministic policy gradient (TD3); conf/agent/ddpg.yaml makes it DDPG.

    Defaults are those of the authors' own code, which differ from the paper's in sizes and rates.
    """

    actions: ClassVar[tuple[str, ...]] = ("Box",)

    batch_size: int = setting(256, "transitions per update", low=1)
    policy_delay: int = setting(2, "critic updates per update of the actor and all targets", low=1)
    target_noise: float = setting(
        0.2,
        "standard deviation of the noise on target actions, which are scaled to -1 to 1; 0: none",
        low=0,
    )
    target_noise_clip: float = setting(
        0.5, "maximum absolute value of the noise on target actions", above=0
    )
    noise: Noise = setting(
        Noise.gaussian,
        "exploration noise: gaussian, or ornstein_uhlenbeck, which is correlated over the steps "
        "of an episode",
    )
    noise_std: float = setting(
        0.1,
        "standard deviation of the noise drawn at each step, for actions scaled to -1 to 1",
        low=0,
    )
    final_bound: float | None = setting(
        None,
        "initialises the last layers uniformly within plus or minus this value; null: like the "
        "other layers",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_noise == 0:
            self.refuse_beside(["target_noise_clip"], "needs agent.target_noise above 0")
        if self.noise_std == 0:
            self.refuse_beside(["noise"], "needs agent.noise_std above 0 (otherwise: gaussian)")


@dataclass(kw_only=True)
class Td3BcConfig(Td3Config):
    """TD3 with behaviour cloning."""

    alpha: float = setting(
        2.5,
        "weight of Q, normalised by its mean absolute value, relative to behaviour cloning",
        above=0,
    )
