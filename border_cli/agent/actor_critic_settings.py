"""Settings that agents with an actor and critics share. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.agent.settings import NetworkConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """What agents with an actor and an ensemble of critics share."""

    learning_rate: float = setting(3e-4, "of Adam, for the actor", above=0)
    critic_learning_rate: float | None = setting(
        None, "of Adam, for the critics; null: learning_rate", above=0
    )
    max_grad_norm: float | None = setting(
        None, "clips the norm of each gradient; null: off", above=0
    )
    num_critics: int = setting(
        2, "critics, of which targets take the smallest value", low=1, takes_memory=True
    )
    tau: float = setting(
        0.005, "target := tau * online + (1 - tau) * target; 1 copies", above=0, high=1
    )
    critic_layer_norm: bool = setting(
        False, "normalises hidden layers of the critics, where layer_norm does not do so for all"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_layer_norm and self.layer_norm:
            self.refuse("critic_layer_norm", True, "has no effect with agent.layer_norm=true")
