"""Settings of behaviour cloning. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.agent.settings import NetworkConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class BcConfig(NetworkConfig):
    """Behaviour cloning: imitates the actions in the data."""

    gives_priorities: ClassVar[bool] = False

    batch_size: int = setting(256, "transitions per update", low=1)
    learning_rate: float = setting(3e-4, "Adam learning rate", above=0)
    max_grad_norm: float | None = setting(
        None, "clips the gradient norm to this value; null: no clipping", above=0
    )
    stochastic: bool = setting(
        False,
        "continuous actions only: learns a Gaussian by maximum likelihood instead of a single "
        "action by squared error",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize_reward:
            self.refuse("normalize_reward", True, "must be false: cloning does not use rewards")
