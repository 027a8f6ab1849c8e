"""Settings of the recorders. A run may use several recorders."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from border_cli.errors import ConfigError, MissingPackage
from border_cli.registry import RECORDERS
from border_cli.settings.base import setting
from border_cli.settings.run import RecorderConfig
from border_cli.system.foreign import find_mark


class StepAxis(StrEnum):
    """The unit of an x axis."""

    opt_steps = "opt_steps"
    env_steps = "env_steps"


PROJECT = re.compile(r"[^/\\:]+")  # plain name, which cannot select an account, store or folder


def refuse_store_here(tracker: str) -> None:
    """Raises ConfigError if the current directory is in one that border_cli wrote and the tracker's
    package would read settings or open a store in it."""
    mark = find_mark(Path.cwd())
    elsewhere = {"mlflow": os.environ.get("MLFLOW_TRACKING_URI"), "wandb": None}
    if mark and not elsewhere.get(tracker, tracker):
        raise ConfigError(
            f"recorder={tracker} would use files of the current directory, which border_cli wrote: "
            f"{mark}. Change to another directory (for mlflow it is enough to set "
            "$MLFLOW_TRACKING_URI)"
        )


@dataclass(kw_only=True)
class TensorboardConfig(RecorderConfig, path="recorder.tensorboard"):
    """TensorBoard event files in the run directory."""

    step: StepAxis = setting(
        StepAxis.opt_steps, "x axis in TensorBoard: updates (opt_steps) or env steps"
    )


@dataclass(kw_only=True)
class TrackerConfig(RecorderConfig, path="recorder"):
    """Settings common to all trackers."""

    tracker: ClassVar[str]  # name of the recorder and of the package that it requires

    project: str | None = setting(
        None,
        "project or experiment; null means $MLFLOW_EXPERIMENT_NAME or $WANDB_PROJECT, if set, or "
        "border_cli",
    )
    close_timeout_s: float = setting(
        20.0, "maximum seconds to wait for pending deliveries at the end of a run", above=0
    )

    step: StepAxis = setting(StepAxis.opt_steps, "x axis: updates (opt_steps) or env steps")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not PROJECT.fullmatch(str(self.project)):
            self.refuse("project", self.project, "must be a plain name, without a slash or a colon")

    def refuse_missing(self) -> None:
        refuse_store_here(self.tracker)
        if find_spec(self.tracker) is None:
            raise MissingPackage(f"recorder={self.tracker}", f"border-cli[{self.tracker}]")


@dataclass(kw_only=True)
class MlflowConfig(TrackerConfig, path="recorder.mlflow"):
    """MLflow: the server or store in $MLFLOW_TRACKING_URI; by default ./mlflow.db."""

    tracker = "mlflow"


@dataclass(kw_only=True)
class WandbConfig(TrackerConfig, path="recorder.wandb"):
    """Weights & Biases; offline unless the user is logged in."""

    tracker = "wandb"


@dataclass(kw_only=True)
class TrackioConfig(TrackerConfig, path="recorder.trackio"):
    """trackio with its local store."""

    tracker = "trackio"


@dataclass(kw_only=True)
class JsonlConfig(RecorderConfig, path="recorder.jsonl"):
    """One JSON object per row of metrics, in <run>/metrics.jsonl."""


@dataclass(kw_only=True)
class ConsoleConfig(RecorderConfig, path="recorder.console"):
    """A live panel in a terminal; otherwise a status line at regular intervals."""

    line_interval_s: float = setting(
        30.0, "seconds between status lines when output is not a terminal", above=0
    )


RECORDERS.register(
    "tensorboard", TensorboardConfig, "border_cli.recorder.tensorboard:TensorboardRecorder"
)
RECORDERS.register("jsonl", JsonlConfig, "border_cli.recorder.jsonl:JsonlRecorder")
RECORDERS.register("mlflow", MlflowConfig, "border_cli.recorder.tracking:TrackerRecorder")
RECORDERS.register("wandb", WandbConfig, "border_cli.recorder.tracking:TrackerRecorder")
RECORDERS.register("trackio", TrackioConfig, "border_cli.recorder.tracking:TrackerRecorder")
RECORDERS.register("console", ConsoleConfig, "border_cli.recorder.console:ConsoleRecorder")
