"""The settings of our components, with their meaning and range. Never imports torch."""

from dataclasses import dataclass

from border_cli.agent.config import DqnConfig
from border_cli.settings.base import setting
from border_cli.settings.run import RecorderConfig


@dataclass(kw_only=True)
class MellowDqnConfig(DqnConfig):
    """DQN with the mellowmax of the next action values in its targets, not their maximum."""

    omega: float = setting(
        3.0,
        "sharpness of the mellowmax: for small values it is near the mean, for large ones near "
        "the maximum",
        above=0,
    )
    double: bool = setting(False, "must be false: a mellowmax chooses no single next action")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_beside(["double", "num_atoms"], "cannot be combined with a mellowmax")


@dataclass(kw_only=True)
class ScoreFileConfig(RecorderConfig, path="recorder.scores"):
    """A table of evaluations for spreadsheets, in <run>/scores.csv."""

    digits: int = setting(3, "digits of a score after the point", low=0)
