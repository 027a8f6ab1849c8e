"""PPO on CartPole: border_cli, Stable-Baselines3 and a file in CleanRL's manner, on one thread.

    python -m benchmarks.matched_ppo [--shape zoo] [--repetitions 5] [--env-steps 40960]

`zoo`: the RL Zoo's settings for CartPole, 8 environments, 32 steps of each, 20 epochs with one
minibatch of 256 rows. `cleanrl`: 4 environments, 128 steps of each, 4 epochs of 4 minibatches.
`single`: the same with one environment. Ours is a full run of `border-train agent=ppo env=cartpole`
without evaluations and checkpoints; `bare` is `bare_ppo.py`. Timed from env step 2,048 to the end.
`return_1_of_4` to `return_4_of_4` are mean returns over the quarters of the training episodes (SB3:
of the last 100), to verify that all learn; random numbers differ. Each measurement runs in its own
process; the contenders take turns.
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
SHAPES = {
    "zoo": {"num_envs": 8, "n_steps": 32, "n_epochs": 20, "batch_size": 256},
    "cleanrl": {"num_envs": 4, "n_steps": 128, "n_epochs": 4, "batch_size": 128},
    "single": {"num_envs": 1, "n_steps": 128, "n_epochs": 4, "batch_size": 32},
}
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


def ours(seed: int, env_steps: int, shape: dict[str, int]) -> Reading:
    """Measures one of our runs."""
    timer = Timer()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        off = [f"trainer.{name}=0" for name in OFF]
        limits = [f"trainer.max_env_steps={env_steps}", "trainer.stop_at_score=null"]
        run_dir = f"run_dir={Path(folder) / 'run'}"
        groups = {"num_envs": "env", "batch_size": "agent"}
        sizes = [
            f"{groups.get(name, 'replay_buffer')}.{name}={value}" for name, value in shape.items()
        ]
        run = "agent=ppo", "env=cartpole", f"seed={seed}", run_dir
        config = compose(*run, *off, *limits, *sizes)
        train(config, recorders=[], callbacks=[timer])
        os.chdir("/")
    return timer.reading()


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--env-steps", type=int, default=40_960, help="env steps per run (default: 40960)"
    )
    parser.add_argument("--shape", choices=SHAPES, default="zoo", help="sizes (default: zoo)")
    arguments = parser.parse_args()
    targets = {
        "ours": partial(call, "benchmarks.matched_ppo:ours"),
        "bare": partial(call, "benchmarks.bare_ppo:measure", settled=SETTLED),
    }
    if installed("stable-baselines3"):
        targets[SB3] = partial(call, "benchmarks.stable_baselines:matched_ppo")
    else:
        say('skipped: sb3 (needs pip install "border-cli[bench]")')
    steps = arguments.env_steps
    sizes = {"env_steps": steps, "shape": SHAPES[arguments.shape]}
    readings = take_turns(
        {
            name: partial(lambda target, seed: target(seed=seed, **sizes), target)
            for name, target in targets.items()
        },
        arguments.repetitions,
    )
    for name, own_results in readings.items():
        line = {"shape": arguments.shape, **summary(own_results)}
        for other in {SB3, "bare"} & readings.keys() - {name}:
            pair = (
                column(results, "env_steps_per_s") for results in (own_results, readings[other])
            )
            line[f"env_steps_per_s_to_{other}"] = ratios(*pair)
        emit("matched_ppo", name, line)


if __name__ == "__main__":
    main()
