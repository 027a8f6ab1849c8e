"""Settings of the recorders; a run may have several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.registry import RECORDERS
from border_cli.settings.base import setting
from border_cli.settings.run import RecorderConfig


class StepAxis(StrEnum):
    """The unit of TensorBoard's x axis."""

    opt_steps = "opt_steps"
    env_steps = "env_steps"


@dataclass(kw_only=True)
class TensorboardConfig(RecorderConfig, path="recorder.tensorboard"):
    """TensorBoard event files in the run directory."""

    step: StepAxis = setting(
        StepAxis.opt_steps, "x axis in TensorBoard: updates (opt_steps) or env steps"
    )


@dataclass(kw_only=True)
class JsonlConfig(RecorderConfig, path="recorder.jsonl"):
    """One JSON object per row of metrics, in <run>/metrics.jsonl."""


@dataclass(kw_only=True)
class ConsoleConfig(RecorderConfig, path="recorder.console"):
    """A live panel in a terminal; a status line from time to time elsewhere."""

    line_interval_s: float = setting(
        30.0, "seconds between status lines when output is not a terminal", above=0
    )


RECORDERS.register(
    "tensorboard", TensorboardConfig, "border_cli.recorder.tensorboard:TensorboardRecorder"
)
RECORDERS.register("jsonl", JsonlConfig, "border_cli.recorder.jsonl:JsonlRecorder")
RECORDERS.register("console", ConsoleConfig, "border_cli.recorder.console:ConsoleRecorder")
