"""Settings of the agents that maximise entropy beside reward. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.core.settings import setting


class ActorCritics(StrEnum):
    """What an actor climbs of several critics."""

    min = "min"
    mean = "mean"


@dataclass(kw_only=True)
class EntropyConfig(ActorCriticConfig):
    """What all agents share that weigh entropy against reward."""

    batch_size: int = setting(256, "sampled rows per optimisation step", low=1)
    ent_coef: float | None = setting(
        None, "weight of the entropy, in units of reward; null: learned", low=0
    )
    ent_coef_init: float = setting(1.0, "where a learned ent_coef begins", above=0)
    ent_coef_learning_rate: float | None = setting(
        None, "of Adam, for a learned ent_coef; null: learning_rate", above=0
    )
    target_entropy: float | None = setting(
        None,
        "entropy that a learned ent_coef keeps, in nats, of actions of -1 to 1; null: minus the "
        "number of action dimensions",
    )
    reward_scale: float = setting(1.0, "rewards are multiplied by it", above=0)
    policy_delay: int = setting(
        1, "optimisation steps per update of the actor and of ent_coef", low=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef is not None:
            learned = ("ent_coef_init", "ent_coef_learning_rate", "target_entropy")
            self.refuse_beside(learned, "needs a learned ent_coef (agent.ent_coef=null)")


@dataclass(kw_only=True)
class SacConfig(EntropyConfig):
    """Soft actor-critic; with conf/agent/redq.yaml and droq.yaml what grew out of it."""

    subset: int | None = setting(
        None,
        "critics drawn anew for each target, which takes their smallest value; null: all",
        low=1,
    )
    actor_critics: ActorCritics = setting(
        ActorCritics.min, "what the actor climbs: the smallest value of all critics, or their mean"
    )
    dropout: float = setting(
        0.0, "share of the hidden units of critics that each pass leaves out", low=0, high=0.9
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset is not None and self.subset > self.num_critics:
            allowed = f"must be at most agent.num_critics ({self.num_critics})"
            self.refuse("subset", self.subset, allowed)


@dataclass(kw_only=True)
class TqcConfig(EntropyConfig):
    """Truncated quantile critics."""

    num_critics: int = setting(5, "critics, whose quantiles a target pools", low=1)
    num_quantiles: int = setting(
        25, "quantiles of the return that each critic has", low=1, takes_memory=True
    )
    dropped_quantiles: int = setting(
        2, "largest quantiles per critic that a target leaves out, against overestimation", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped_quantiles >= self.num_quantiles:
            allowed = f"must be below agent.num_quantiles ({self.num_quantiles})"
            self.refuse("dropped_quantiles", self.dropped_quantiles, allowed)
