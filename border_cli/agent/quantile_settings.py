"""Settings of the agents that learn quantiles of the return. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from border_cli.agent.value_settings import ValueConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class QuantileConfig(ValueConfig):
    """Settings that every agent with quantiles of the return has."""

    kappa: float = setting(
        1.0,
        "threshold of the quantile Huber loss, in units of reward; 0: plain quantile regression "
        "loss, which learns exact quantiles",
        low=0,
    )
    risk_low: float = setting(
        0.0, "lower end of the quantile fractions whose mean ranks the actions", low=0, high=1
    )
    risk_high: float = setting(
        1.0,
        "upper end of these fractions: 0 to 1 is risk-neutral, 0 to 0.25 risk-averse (CVaR), "
        "0.75 to 1 risk-seeking",
        low=0,
        high=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.risk_low >= self.risk_high:
            allowed = f"must be above agent.risk_low={self.risk_low:g}"
            self.refuse("risk_high", self.risk_high, allowed)


@dataclass(kw_only=True)
class QrdqnConfig(QuantileConfig):
    """QR-DQN; conf/tuned/qrdqn_<env>.yaml has tuned settings per environment."""

    num_quantiles: int = setting(
        50, "quantiles per action; 200 in the paper", low=1, takes_memory=True
    )

    @property
    def fractions(self) -> list[float]:
        """Which quantiles are learned: the middles of equal parts of 0 … 1. [num_quantiles]"""
        return midpoints(self.num_quantiles)

    @property
    def shares(self) -> list[float]:
        """What each quantile is worth to the mean that is acted on; 1 in all. [num_quantiles]

        Each stands for its whole part of 0 … 1, so that any range is met exactly.
        """
        edges = [i / self.num_quantiles for i in range(self.num_quantiles + 1)]
        within = [
            max(0.0, min(high, self.risk_high) - max(low, self.risk_low))
            for low, high in pairwise(edges)
        ]
        return [each / sum(within) for each in within]


@dataclass(kw_only=True)
class IqnConfig(QuantileConfig):
    """Implicit quantile networks; conf/tuned/iqn_<env>.yaml has tuned settings per environment."""

    embedding_size: int = setting(
        64, "cosine features of a quantile fraction", low=1, takes_memory=True
    )
    num_quantiles_online: int = setting(
        8,
        "quantile fractions drawn per transition for Q(s, a) (N; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_target: int = setting(
        8,
        "quantile fractions drawn per transition for the target (N'; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_acting: int = setting(
        32,
        "quantile fractions averaged to choose an action (K)",
        low=1,
        takes_memory=True,
    )

    @property
    def fractions(self) -> list[float]:
        """Whose mean is acted on. [num_quantiles_acting]"""
        return midpoints(self.num_quantiles_acting, self.risk_low, self.risk_high)

    @property
    def rows_per_update(self) -> int:
        # What follows the embedding is computed for every fraction of every row.
        return self.batch_size * self.num_quantiles_online


def midpoints(count: int, low: float = 0.0, high: float = 1.0) -> list[float]:
    """The middles of so many equal parts of a range."""
    return [low + (high - low) * (i + 0.5) / count for i in range(count)]
