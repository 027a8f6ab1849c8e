"""Settings of the recorders; a run may have several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from border_cli.core.config import RecorderConfig
from border_cli.core.settings import setting
from border_cli.registry import RECORDERS


class StepAxis(StrEnum):
    """What TensorBoard's x axis counts."""

    opt_steps = "opt_steps"
    env_steps = "env_steps"


@dataclass(kw_only=True)
class TensorboardConfig(RecorderConfig, path="recorder.tensorboard"):
    """Event files for TensorBoard, in the run directory."""

    step: StepAxis = setting(
        StepAxis.opt_steps, "x axis of TensorBoard: updates (opt_steps) or env steps"
    )


@dataclass(kw_only=True)
class JsonlConfig(RecorderConfig, path="recorder.jsonl"):
    """One JSON object per row in <run>/metrics.jsonl."""


@dataclass(kw_only=True)
class ConsoleConfig(RecorderConfig, path="recorder.console"):
    """A live panel on a terminal or in a notebook; a plain line now and then elsewhere."""

    line_interval_s: float = setting(
        30.0, "seconds between lines where there is no terminal", above=0
    )


RECORDERS.register(
    "tensorboard", TensorboardConfig, "border_cli.recorder.tensorboard:TensorboardRecorder"
)
RECORDERS.register("jsonl", JsonlConfig, "border_cli.recorder.jsonl:JsonlRecorder")
RECORDERS.register("console", ConsoleConfig, "border_cli.recorder.console:ConsoleRecorder")
