"""Settings of the step processors."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.registry import STEP_PROCESSORS
from border_cli.settings.base import setting
from border_cli.settings.run import StepProcessorConfig


@dataclass(kw_only=True)
class NStepConfig(StepProcessorConfig):
    """n-step transitions."""

    n_steps: int = setting(
        1,
        "env steps per transition; 1: one-step transitions; step_processor=multi_step: 3",
        low=1,
        high=1_000,
    )


STEP_PROCESSORS.register("n_step", NStepConfig, "border_cli.step_processor.n_step:NStep")
