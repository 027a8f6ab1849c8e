"""The settings of our components, with descriptions and ranges. Must not import torch."""

from dataclasses import dataclass

from border_cli.agent.config import DqnConfig
from border_cli.settings.base import setting
from border_cli.settings.run import RecorderConfig


@dataclass(kw_only=True)
class MellowDqnConfig(DqnConfig):
    """DQN with a mellowmax over the next action values in its targets, instead of the maximum."""

    omega: float = setting(
        3.0,
        "sharpness of the mellowmax, which is close to the mean for a small omega and to the "
        "maximum for a large one",
        above=0,
    )
    double: bool = setting(False, "must be false, because a mellowmax selects no next action")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_beside(["double", "num_atoms"], "cannot be combined with a mellowmax")


@dataclass(kw_only=True)
class ScoreFileConfig(RecorderConfig, path="recorder.scores"):
    """Writes the evaluation scores to <run>/scores.csv, for spreadsheets."""

    digits: int = setting(3, "decimal places of the scores", low=0)
