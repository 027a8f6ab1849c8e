"""Settings that agents with an actor and critics share. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.agent.settings import NetworkConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """Settings that every agent with an actor and an ensemble of critics has."""

    learning_rate: float = setting(3e-4, "Adam learning rate of the actor", above=0)
    critic_learning_rate: float | None = setting(
        None, "Adam learning rate of the critics; null: learning_rate", above=0
    )
    max_grad_norm: float | None = setting(
        None, "clips the norm of each gradient to this value; null: no clipping", above=0
    )
    num_critics: int = setting(
        2, "number of critics; targets use their minimum", low=1, takes_memory=True
    )
    tau: float = setting(
        0.005,
        "Polyak averaging: target = tau * online + (1 - tau) * target; 1: hard copy",
        above=0,
        high=1,
    )
    critic_layer_norm: bool = setting(
        False, "applies layer normalisation in the critics only; layer_norm does so in all networks"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_layer_norm and self.layer_norm:
            self.refuse("critic_layer_norm", True, "has no effect with agent.layer_norm=true")
