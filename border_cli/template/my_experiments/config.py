"""The settings of our components, with their meaning and range. Never imports torch."""

from dataclasses import dataclass

from border_cli.agent.config import DqnConfig
from border_cli.core.config import RecorderConfig
from border_cli.core.settings import setting


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

    metrics: list[str] = setting(
        ["eval/return", "eval/return_std", "eval/length"],
        "columns after the counters; a row of metrics with none of them is left out",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.metrics:
            self.refuse("metrics", self.metrics, "must name at least one metric")
