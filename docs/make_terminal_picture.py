"""Draws terminal.svg, the picture in the README: the panel of a real run, at work and at its end.

    OMP_NUM_THREADS=1 python docs/make_terminal_picture.py

Trains SAC on Pendulum for about a minute in a temporary folder. All figures are those of this run
on this machine.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from border_cli import compose, train
from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder.panel import ENDED, RunView, panel
from border_cli.recorder.terminal import say
from border_cli.settings.run import RunConfig
from border_cli.system.machine import machine_bytes, resident_bytes
from border_cli.words import size

PICTURE = Path(__file__).with_name("terminal.svg")
COMMAND = ("agent=sac", "env=pendulum")
AT_WORK = 0.6  # of the budget, when the first panel is taken
# A figure behind each of these labels, in both panels.
LABELS = ("updates", "env steps", "best eval", "last eval", "updates/s", "samples/s", "per update")


class Photographer(Recorder):
    """Takes the panel in the middle of the run and at its end."""

    def __init__(self, config: RunConfig, run_dir: Path) -> None:
        info = RunInfo(
            name=config.name,
            run_dir=run_dir,
            max_opt_steps=config.trainer.max_opt_steps,
            max_env_steps=config.trainer.max_env_steps,
            max_time_s=config.trainer.max_time_s,
        )
        self._view = RunView(info)
        self.at_work: RenderableType = ""
        self.at_end: RenderableType = ""

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        self._view.take_progress(progress)
        budget = self._view.nearest_budget()
        halfway = budget is not None and budget.fraction >= AT_WORK
        if not self.at_work and halfway and progress.phase == "learning":
            self.at_work = self._panel()

    def close(self) -> None:
        self._view.phase = ENDED
        self.at_end = self._panel()

    def _panel(self) -> RenderableType:
        memory = f"{size(resident_bytes())} of {size(machine_bytes())}"
        return panel(self._view, memory)


def missing(text: str) -> list[str]:
    """The labels that lack a figure in one of the two panels."""
    return [
        label
        for label in LABELS
        if len(re.findall(rf"(?<!\S){re.escape(label)}\s+-?\d[\d.,]*\s", text)) != 2
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = compose(*COMMAND, f"run_dir={folder}")
        photographer = Photographer(config, Path(folder))
        train(config, recorders=[photographer])
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80
    )
    say(console, f"$ border-train {' '.join(COMMAND)}")
    console.print(photographer.at_work)
    console.print(Text("…", style="dim"))
    console.print(photographer.at_end)
    text = console.export_text(clear=False)
    if missing(text):
        sys.exit(f"no picture: without figures for {', '.join(missing(text))}:\n{text}")
    console.save_svg(str(PICTURE), title="border-train", unique_id="terminal")


if __name__ == "__main__":
    main()
