"""The cost of checkpoints for the learner.

    python -m benchmarks.saving [--pairs 4] [--block-s 30] [--rows cartpole frames]

A run first fills its replay buffer (1,000,000 transitions of CartPole, or 100,000 of 84x84x4
frames: 5.6 GB) and then learns at one sample per update with one actor process. Its time is divided
into blocks of 30 s. Every other block starts with a checkpoint, as with `trainer.save_every_s=30`.
`saving` is the updates per second of a block with a checkpoint, divided by the mean of the blocks
around it, which have none. The first checkpoint writes the whole buffer, later ones only the new
transitions: `first` is the ratio of the first one, `saving` is over all of them.
`noise` compares neighboring blocks without a checkpoint: the resolution of `saving`.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.full_run import Setup
from benchmarks.isolated import call
from benchmarks.machine import Others
from benchmarks.table import Reading, emit, make_parser, say, spread
from border_cli.config.job import Job
from border_cli.core.output import Progress, Recorder, RecordStep
from border_cli.core.stop import SaveFlag, StopFlag
from border_cli.core.types import Metrics
from border_cli.launch.run import RunOptions, run_job
from border_cli.registry import register_builtin
from border_cli.run.finding import find_resumable

ROWS = {
    "cartpole": ("CartPole-v1", 1_000_000),
    "frames": ("benchmarks.frames_env:Frames-v0", 100_000),
}
SETTLED_S = 10.0


class Over(Exception):
    """Raised when all blocks have been measured."""


class Blocks(Recorder):
    """A recorder that measures updates/s per block and requests a checkpoint for every second."""

    def __init__(self, pairs: int, block_s: float, *, stop: StopFlag, save: SaveFlag) -> None:
        self._blocks = 2 * pairs + 1
        self._block_s = block_s
        self._stop, self._save = stop, save
        self._learns_s: float | None = None
        self._began: tuple[float, int] | None = None
        self.rates: list[float] = []

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del metrics
        now_s = time.perf_counter()
        if final or step.opt_steps == 0 or len(self.rates) == self._blocks:
            return
        self._learns_s = self._learns_s or now_s
        if now_s - self._learns_s < SETTLED_S:
            return
        if self._began is None:
            self._began = (now_s, step.opt_steps)
            return
        began_s, opt_steps = self._began
        if now_s - began_s < self._block_s:
            return
        self.rates.append((step.opt_steps - opt_steps) / (now_s - began_s))
        self._began = (now_s, step.opt_steps)
        say(f"  block {len(self.rates)}: {self.rates[-1]:.1f} updates/s")
        if len(self.rates) == self._blocks:
            self._stop.request(Over())
        elif len(self.rates) % 2 == 1:
            self._save.request()

    def show(self, progress: Progress) -> None:
        """Does nothing: progress is not shown."""

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def run(name: str, pairs: int, block_s: float) -> dict[str, Any]:
    """Measures one row and returns its ratios."""
    register_builtin()
    env_id, capacity = ROWS[name]
    trainer = {"warmup_period": capacity, "max_time_s": 3_600.0, "record_interval": 10}
    setup = Setup(manager="process", env_id=env_id, capacity=capacity, trainer=trainer)
    config = replace(setup.run_config(0), recorder={})
    stop, save = StopFlag(), SaveFlag()
    blocks = Blocks(pairs, block_s, stop=stop, save=save)
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(recorders=[blocks], stop=stop, save=save)
        with suppress(Over):
            run_job(Job(folder=Path(folder), config=config), options)
        assert find_resumable(Path(folder)), "nothing was saved"
    without_checkpoint, with_checkpoint = blocks.rates[::2], blocks.rates[1::2]
    around = [fmean(pair) for pair in pairwise(without_checkpoint)]
    block_ratios = [mine / other for mine, other in zip(with_checkpoint, around, strict=True)]
    return {
        "saving": fmean(with_checkpoint) / fmean(around),
        "first": block_ratios[0],
        "each": block_ratios,
        "updates_per_s": fmean(without_checkpoint),
        "noise": [a / b for a, b in pairwise(without_checkpoint)],
    }


def main() -> None:
    parser = make_parser(__doc__, repetitions=1)
    parser.add_argument("--pairs", type=int, default=4, help="pairs of blocks (default: 4)")
    parser.add_argument(
        "--block-s", type=float, default=30.0, help="seconds per block (default: 30)"
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments = parser.parse_args()
    for name in arguments.rows:
        readings: list[Reading] = []
        for _ in range(arguments.repetitions):
            with Others() as others:
                reading = call(
                    "benchmarks.saving:run",
                    name=name,
                    pairs=arguments.pairs,
                    block_s=arguments.block_s,
                )
            readings.append({**reading, "other_cores": others.cores})
        rows = {
            key: spread([result[key] for result in readings])
            for key in ("saving", "first", "updates_per_s", "other_cores")
        }
        emit("saving", name, {**rows, "each": [result["each"] for result in readings]})


if __name__ == "__main__":
    main()
