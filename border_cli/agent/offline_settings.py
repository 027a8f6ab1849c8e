"""Settings of the agents that learn from data collected before. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.agent.actor_critic_settings import ActorCriticConfig
from border_cli.agent.sac_settings import EntropyConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class AdvantageConfig(ActorCriticConfig):
    """What agents share whose actor clones the better actions of the data."""

    batch_size: int = setting(256, "sampled rows per optimisation step", low=1)
    inv_lambda: float = setting(
        3.0,
        "rows count for exp(inv_lambda * advantage): 1 / lambda of AWAC, the inverse temperature "
        "beta of IQL; 0 clones all alike",
        low=0,
    )
    exp_adv_max: float = setting(100.0, "most that a row counts for", above=0)
    adv_softmax: bool = setting(
        False, "divides by the sum over the batch instead of cutting at exp_adv_max"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adv_softmax:
            self.refuse_beside(
                ["exp_adv_max"], "needs agent.adv_softmax=false: a softmax is not clipped"
            )


@dataclass(kw_only=True)
class AwacConfig(AdvantageConfig):
    """Advantage weighted actor-critic."""


@dataclass(kw_only=True)
class IqlConfig(AdvantageConfig):
    """Implicit Q-learning; defaults are the paper's for MuJoCo."""

    expectile: float = setting(
        0.7, "of Q(s, a) over the actions of the data: 0.5 is their mean, near 1 the best", above=0
    )
    value_learning_rate: float | None = setting(
        None, "of Adam, for V(s); null: learning_rate", above=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expectile >= 1:
            self.refuse("expectile", self.expectile, "must be below 1")


@dataclass(kw_only=True)
class CqlConfig(EntropyConfig):
    """Conservative Q-learning of continuous actions; rates are those of the authors' code."""

    learning_rate: float = setting(1e-4, "of Adam, for the actor", above=0)
    critic_learning_rate: float | None = setting(
        3e-4, "of Adam, for the critics; null: learning_rate", above=0
    )
    conservative_weight: float = setting(
        5.0,
        "of how far values of any action stand above those of the data's, beside half the squared "
        "TD error (2.5 is the 5 of the authors' code, which has all of it); "
        "with conservative_gap, where a learned weight begins",
        low=0,
    )
    conservative_gap: float | None = setting(
        None,
        "how far they may stand above, in units of reward: the weight grows beyond it and falls "
        "below; null: the weight stays as it is",
    )
    sampled_actions: int = setting(
        10, "actions per row drawn uniformly, as many by the actor and as many by it in s'", low=1
    )
    backup_entropy: bool = setting(False, "targets count the entropy of s', as those of sac do")

    @property
    def rows_per_update(self) -> int:
        # The critics value all sampled actions of every row.
        return self.batch_size * 3 * self.sampled_actions

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.conservative_gap is not None and self.conservative_weight == 0:
            self.refuse("conservative_weight", 0, "must be above 0 with agent.conservative_gap")
