"""Draws terminal.svg, the picture in the README: the panel of a run that really takes place.

    OMP_NUM_THREADS=1 python docs/make_terminal_picture.py

trains on CartPole for some seconds, in a temporary folder, and draws what the terminal showed last
while the agent learned. All numbers are those of this run on this machine.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from rich.console import Console, RenderableType

from border_cli import compose, train
from border_cli.core.config import RunConfig
from border_cli.core.machine import machine_bytes, resident_bytes
from border_cli.core.output import Progress, Recorder, RecordStep, RunInfo
from border_cli.core.types import Metrics
from border_cli.recorder import figures
from border_cli.recorder.panel import panel
from border_cli.recorder.terminal import say
from border_cli.recorder.view import RunView

PICTURE = Path(__file__).with_name("terminal.svg")
COMMAND = ("agent=dqn", "env=cartpole")


class Photographer(Recorder):
    """Keeps the newest panel that a terminal would have shown while the agent learned."""

    def __init__(self, config: RunConfig, run_dir: Path) -> None:
        info = RunInfo(
            name=config.name,
            run_dir=run_dir,
            max_opt_steps=config.trainer.max_opt_steps,
            max_env_steps=config.trainer.max_env_steps,
            max_time_s=config.trainer.max_time_s,
        )
        self._view = RunView(info)
        self.picture: RenderableType = ""

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final
        self._view.take_row(step, metrics)

    def show(self, progress: Progress) -> None:
        self._view.take_progress(progress)
        if progress.phase == "learning":
            memory = f"{figures.memory(resident_bytes())} of {figures.memory(machine_bytes())}"
            self.picture = panel(self._view, memory, figures.BLOCKS)

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = compose(*COMMAND, f"run_dir={folder}")
        photographer = Photographer(config, Path(folder))
        train(config, recorders=[photographer])
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80
    )
    say(console, f"$ border-train {' '.join(COMMAND)}")
    console.print(photographer.picture)
    console.save_svg(str(PICTURE), title="border-train", unique_id="terminal")


if __name__ == "__main__":
    main()
