"""Settings of the agents whose actor puts out one action. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.core.settings import setting


class Noise(StrEnum):
    """How the noise of one step hangs together with that of the next."""

    gaussian = "gaussian"
    ornstein_uhlenbeck = "ornstein_uhlenbeck"


@dataclass(kw_only=True)
class Td3Config(ActorCriticConfig):
    """Twin delayed deep deterministic policy gradient; with conf/agent/ddpg.yaml its ancestor.

    Defaults are those of the authors' own code, which differ from the paper's in sizes and rates.
    """

    batch_size: int = setting(256, "sampled rows per optimisation step", low=1)
    policy_delay: int = setting(
        2, "optimisation steps per update of the actor and of all targets", low=1
    )
    target_noise: float = setting(
        0.2, "deviation of the noise on the target's actions (of -1 to 1); 0: none", low=0
    )
    target_noise_clip: float = setting(0.5, "most that target_noise may be", above=0)
    noise: Noise = setting(
        Noise.gaussian,
        "what explores: gaussian, or ornstein_uhlenbeck, whose noise of one step lasts into the "
        "next ones of the episode",
    )
    noise_std: float = setting(
        0.1, "deviation of the noise drawn at each step, on actions of -1 to 1", low=0
    )
    final_bound: float | None = setting(
        None, "last layers begin between so much and its negative; null: as the others", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_noise == 0:
            self.refuse_beside(["target_noise_clip"], "needs agent.target_noise above 0")
        if self.noise_std == 0:
            self.refuse_beside(["noise"], "needs agent.noise_std above 0 (otherwise: gaussian)")


@dataclass(kw_only=True)
class Td3BcConfig(Td3Config):
    """TD3 beside imitation of the actions in the data."""

    alpha: float = setting(
        2.5, "weight of Q, whose mean size counts as 1, beside that of imitation", above=0
    )
