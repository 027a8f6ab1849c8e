"""Settings of the agents that learn from data collected before. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.agent.sac_settings import EntropyConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class AdvantageConfig(ActorCriticConfig):
    """Settings that every agent with advantage-weighted cloning has."""

    batch_size: int = setting(256, "transitions per update", low=1)
    inv_lambda: float = setting(
        3.0,
        "weights a transition by exp(inv_lambda * advantage): 1 / lambda in AWAC, the inverse "
        "temperature beta in IQL; 0: plain cloning",
        low=0,
    )
    exp_adv_max: float = setting(100.0, "maximum weight of a transition", above=0)
    adv_softmax: bool = setting(
        False, "uses a softmax over the batch as weights instead of clipping them at exp_adv_max"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adv_softmax:
            self.refuse_beside(
                ["exp_adv_max"], "needs agent.adv_softmax=false: a softmax is not clipped"
            )


@dataclass(kw_only=True)
class AwacConfig(AdvantageConfig):
    """Advantage-weighted actor-critic."""


@dataclass(kw_only=True)
class IqlConfig(AdvantageConfig):
    """Implicit Q-learning, with the paper's defaults for MuJoCo."""

    expectile: float = setting(
        0.7,
        "expectile of Q(s, a) over the actions in the data: 0.5 is the mean, close to 1 the "
        "maximum",
        above=0,
    )
    value_learning_rate: float | None = setting(
        None, "Adam learning rate of V(s); null: learning_rate", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expectile >= 1:
            self.refuse("expectile", self.expectile, "must be below 1")


@dataclass(kw_only=True)
class CqlConfig(EntropyConfig):
    """Conservative Q-learning for continuous actions; learning rates of the authors' code."""

    learning_rate: float = setting(1e-4, "Adam learning rate of the actor", above=0)
    critic_learning_rate: float | None = setting(
        3e-4, "Adam learning rate of the critics; null: learning_rate", above=0
    )
    conservative_weight: float = setting(
        5.0,
        "weight of the conservative gap, by which values of any action exceed those of the "
        "data, relative to half the squared TD error (2.5 equals 5 in the authors' code, which "
        "does not halve it); with conservative_gap, the initial value of a learned weight",
        low=0,
    )
    conservative_gap: float | None = setting(
        None,
        "target for that gap, in units of reward: the weight is learned, and grows above the "
        "target and shrinks below it; null: the weight is fixed",
    )
    sampled_actions: int = setting(
        10,
        "actions per transition drawn uniformly, from the actor in s and from the actor in s', "
        "this many of each",
        low=1,
    )
    backup_entropy: bool = setting(False, "includes the entropy in s' in the targets, as sac does")

    @property
    def rows_per_update(self) -> int:
        # The critics value all sampled actions of every row.
        return self.batch_size * 3 * self.sampled_actions

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conservative_gap is not None and self.conservative_weight == 0:
            self.refuse("conservative_weight", 0, "must be above 0 with agent.conservative_gap")
