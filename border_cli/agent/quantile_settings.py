"""Settings of the agents that learn quantiles of the return. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from border_cli.agent.value_settings import ValueConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class QuantileConfig(ValueConfig):
    """What agents that learn quantiles of the return share."""

    kappa: float = setting(
        1.0,
        "threshold of the quantile Huber loss, in units of the reward; 0: exact quantiles, by the "
        "plain quantile regression loss",
        low=0,
    )
    risk_low: float = setting(
        0.0, "acts on the mean of the quantiles from this fraction on", low=0, high=1
    )
    risk_high: float = setting(
        1.0,
        "acts on the mean of the quantiles up to this fraction: 0 to 1 is neutral, 0 to 0.25 "
        "averse to risk (CVaR), 0.75 to 1 seeks it",
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
    """QR-DQN; conf/tuned/qrdqn_<env>.yaml holds what an env needs."""

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
    """Implicit quantile networks; conf/tuned/iqn_<env>.yaml holds what an env needs."""

    embedding_size: int = setting(64, "cosines of a quantile's fraction", low=1, takes_memory=True)
    num_quantiles_online: int = setting(
        8,
        "fractions drawn for Q(s, a) of a row (N; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_target: int = setting(
        8,
        "fractions drawn for the target of a row (N'; 64 in most of the paper)",
        low=1,
        takes_memory=True,
    )
    num_quantiles_acting: int = setting(
        32,
        "fractions over which the values that choose an action are averaged (K)",
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
