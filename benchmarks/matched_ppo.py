"""PPO with the RL Zoo's settings for CartPole: border_cli and Stable-Baselines3, on one thread.

    python -m benchmarks.matched_ppo [--repetitions 5] [--env-steps 40960]

8 environments, rollouts of 256 steps, 20 epochs with one minibatch of 256 rows. Ours is a full run
of `border-train agent=ppo env=cartpole` without evaluations and checkpoints. Timed from env step
2,048 to the end. `return_1_of_4` to `return_4_of_4` are mean returns over the quarters of the
training episodes (SB3: of the last 100), to verify that both learn; random numbers differ. Each
measurement runs in its own process; the contenders take turns.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import SupportsFloat

from benchmarks.isolated import call
from benchmarks.machine import installed
from benchmarks.table import (
    Reading,
    column,
    emit,
    learning,
    make_parser,
    ratios,
    say,
    summary,
    take_turns,
)
from border_cli import compose, train
from border_cli.core.callback import Callback
from border_cli.core.output import RecordStep
from border_cli.core.types import Episode

SETTLED = 2_048  # env steps before the timed window
SB3 = "sb3"
OFF = ("eval_interval", "record_interval", "save_interval")


class Timer(Callback):
    """Times a run from the first update of the window to the last one."""

    def __init__(self) -> None:
        self._began: tuple[int, float] | None = None
        self._last = (0, 0.0)
        self._returns: list[float] = []

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        del metrics
        self._last = moment.env_steps, time.perf_counter()
        if self._began is None and moment.env_steps >= SETTLED:
            self._began = self._last

    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        del moment
        self._returns.append(episode.score)

    def reading(self) -> Reading:
        """Returns the speed in the window, and the learning curve."""
        assert self._began is not None
        (first, began_s), (last, ended_s) = self._began, self._last
        return {"env_steps_per_s": (last - first) / (ended_s - began_s), **learning(self._returns)}


def ours(seed: int, env_steps: int) -> Reading:
    """Measures one of our runs."""
    timer = Timer()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        off = [f"trainer.{name}=0" for name in OFF]
        limits = [f"trainer.max_env_steps={env_steps}", "trainer.stop_at_score=null"]
        run_dir = f"run_dir={Path(folder) / 'run'}"
        config = compose("agent=ppo", "env=cartpole", f"seed={seed}", run_dir, *off, *limits)
        train(config, recorders=[], callbacks=[timer])
        os.chdir("/")
    return timer.reading()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--env-steps", type=int, default=40_960, help="env steps per run (default: 40960)"
    )
    arguments = parser.parse_args()
    targets = {"ours": "benchmarks.matched_ppo:ours"}
    if installed("stable-baselines3"):
        targets[SB3] = "benchmarks.stable_baselines:matched_ppo"
    else:
        say('skipped: sb3 (needs pip install "border-cli[bench]")')
    steps = arguments.env_steps
    readings = take_turns(
        {
            name: partial(lambda target, seed: call(target, seed=seed, env_steps=steps), target)
            for name, target in targets.items()
        },
        arguments.repetitions,
    )
    for name, own_results in readings.items():
        line = summary(own_results)
        if name != SB3 and SB3 in readings:
            speeds = [
                column(results, "env_steps_per_s") for results in (own_results, readings[SB3])
            ]
            line = {f"env_steps_per_s_to_{SB3}": ratios(*speeds), **line}
        emit("matched_ppo", name, line)


if __name__ == "__main__":
    main()
