"""Draws terminal.svg, the picture in the README. Its numbers are an example, not a measurement."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from border_cli.core.interfaces import Progress, RecordStep, RunInfo
from border_cli.recorder.figures import BLOCKS
from border_cli.recorder.panel import panel
from border_cli.recorder.terminal import say
from border_cli.recorder.view import RunView

PICTURE = Path(__file__).with_name("terminal.svg")
SCORES = {1_000: 21.4, 2_000: 96.3, 3_000: 188.6, 4_000: 274.2, 5_000: 391.5, 6_000: 487.2}
GAUGES = {
    "async/opt_steps_per_sec": 1_294.0,
    "async/samples_per_sec": 1_296.0,
    "async/samples_per_opt_steps": 1.0,
    "async/weight_lag": 61.0,
    "async/queue_fill": 0.06,
    "async/buffer_fill": 0.076,
    "actor/0/samples_per_sec": 649.0,
    "actor/1/samples_per_sec": 647.0,
    "episode/return": 243.6,
}


def a_run_on_its_way() -> RunView:
    """A run of CartPole after six evaluations."""
    info = RunInfo(
        name="dqn_cartpole",
        run_dir=Path("outputs"),
        max_opt_steps=10_000,
        max_env_steps=None,
        max_time_s=None,
    )
    view = RunView(info)
    for opt_steps, score in SCORES.items():
        view.take_row(_step(opt_steps), {"eval/return": score})
    step = _step(6_600)
    view.take_progress(
        Progress(step=step, phase="learning", samples_total=step.env_steps, gauges=GAUGES)
    )
    return view


def _step(opt_steps: int) -> RecordStep:
    env_steps = 1_000 + opt_steps
    return RecordStep(opt_steps=opt_steps, env_steps=env_steps, time_s=env_steps / 1_290)


def main() -> None:
    console = Console(
        record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80
    )
    say(console, "$ border-train agent=dqn env=cartpole")
    console.print(panel(a_run_on_its_way(), "412 MB of 8.2 GB", BLOCKS))
    console.save_svg(str(PICTURE), title="border-train", unique_id="terminal")


if __name__ == "__main__":
    main()
