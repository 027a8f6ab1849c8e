"""Settings of the agents that maximise entropy beside reward. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.core.settings import setting


class ActorCritics(StrEnum):
    """What an actor climbs of several critics."""

    min = "min"
    mean = "mean"


@dataclass(kw_only=True)
class EntropyConfig(ActorCriticConfig):
    """Settings that every agent that maximises entropy as well as reward has."""

    actions: ClassVar[tuple[str, ...]] = ("Box",)

    batch_size: int = setting(256, "transitions per update", low=1)
    ent_coef: float | None = setting(
        None, "entropy coefficient, in units of reward; null: learned", low=0
    )
    ent_coef_init: float = setting(1.0, "initial value of a learned ent_coef", above=0)
    ent_coef_learning_rate: float | None = setting(
        None, "Adam learning rate of a learned ent_coef; null: learning_rate", above=0
    )
    target_entropy: float | None = setting(
        None,
        "target entropy of a learned ent_coef, in nats, for actions scaled to -1 to 1; null: "
        "minus the number of action dimensions",
    )
    reward_scale: float = setting(1.0, "factor applied to rewards", above=0)
    policy_delay: int = setting(1, "critic updates per update of the actor and ent_coef", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef is not None:
            learned = ("ent_coef_init", "ent_coef_learning_rate", "target_entropy")
            self.refuse_beside(learned, "needs a learned ent_coef (agent.ent_coef=null)")


@dataclass(kw_only=True)
class SacConfig(EntropyConfig):
    """Soft actor-critic; conf/agent/redq.yaml and droq.yaml are variants of it."""

    subset: int | None = setting(
        None,
        "critics drawn at random for each target, which uses their minimum; null: all",
        low=1,
    )
    actor_critics: ActorCritics = setting(
        ActorCritics.min, "what the actor maximises: the minimum or the mean of all critics"
    )
    dropout: float = setting(
        0.0, "dropout probability in the hidden layers of the critics", low=0, high=0.9
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset is not None and self.subset > self.num_critics:
            allowed = f"must be at most agent.num_critics ({self.num_critics})"
            self.refuse("subset", self.subset, allowed)


@dataclass(kw_only=True)
class TqcConfig(EntropyConfig):
    """Truncated quantile critics."""

    num_critics: int = setting(
        5, "number of critics, whose quantiles are pooled in the target", low=1
    )
    num_quantiles: int = setting(25, "quantiles of the return per critic", low=1, takes_memory=True)
    dropped_quantiles: int = setting(
        2, "largest quantiles per critic that the target drops, against overestimation", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped_quantiles >= self.num_quantiles:
            allowed = f"must be below agent.num_quantiles ({self.num_quantiles})"
            self.refuse("dropped_quantiles", self.dropped_quantiles, allowed)
