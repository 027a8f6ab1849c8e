"""Settings of the step processors."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.registry import STEP_PROCESSORS
from border_cli.settings.base import setting
from border_cli.settings.run import StepProcessorConfig

ONE_STEP, MULTI_STEP = "n_step", "multi_step"  # options of conf/step_processor


@dataclass(kw_only=True)
class NStepConfig(StepProcessorConfig):
    """n-step transitions. If `option` is one of the two shipped options, it is set to the one that
    matches `n_steps`."""

    n_steps: int = setting(
        1,
        "env steps per transition; 1 means one-step transitions; step_processor=multi_step sets 3",
        low=1,
        high=1_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.option in (ONE_STEP, MULTI_STEP):
            self.option = ONE_STEP if self.n_steps == 1 else MULTI_STEP


STEP_PROCESSORS.register("n_step", NStepConfig, "border_cli.step_processor.n_step:NStep")
