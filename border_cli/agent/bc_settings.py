"""Settings of behaviour cloning. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from border_cli.agent.settings import NetworkConfig
from border_cli.core.settings import setting


@dataclass(kw_only=True)
class BcConfig(NetworkConfig):
    """Behaviour cloning: acts as the data does."""

    gives_priorities: ClassVar[bool] = False

    batch_size: int = setting(256, "sampled rows per optimisation step", low=1)
    learning_rate: float = setting(3e-4, "of Adam", above=0)
    max_grad_norm: float | None = setting(None, "clips the gradient's norm; null: off", above=0)
    stochastic: bool = setting(
        False,
        "continuous actions: learns a distribution (a Gaussian, by its likelihood) instead of one "
        "action (by squared error)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize_reward:
            self.refuse("normalize_reward", True, "must be false: cloning does not use rewards")
