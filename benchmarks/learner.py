"""The learner inside a full `async` run, against a bare torch loop that makes the same updates.

    python -m benchmarks.learner [--updates 4000] [--repetitions 5] [--rows paced_1 paced_2 …]

CartPole-v1, [256, 256], batch 64, Huber, no double Q, no clipping, hard target copies. Each row is
a run of the real thing (`border_cli.launch.launch`: actor threads, gate, channel, replay buffer,
watchdog, metrics written to metrics.jsonl every 100 updates, weights published every 100) on this
machine as it is, timed from update 1,000 on. Unless the row says otherwise nothing is evaluated or
saved within what is timed. Rows and floor take turns, so that `ratio`, of each run to the bare
loops before and after it, does not depend on the machine. Prints one line of JSON per row.
"""

from __future__ import annotations

from benchmarks.machine import facts, load, one_thread_for_blas, spread

one_thread_for_blas()

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.bare import LEARNING_RATE, TARGET_INTERVAL, BareLoop, Speed
from border_cli.actor_manager.config import ThreadConfig
from border_cli.agent.config import DqnConfig
from border_cli.assemble import build_recorders
from border_cli.core.config import RunConfig
from border_cli.core.interfaces import Recorder, RecordStep
from border_cli.core.types import Metrics
from border_cli.env.config import GymConfig
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch import Launch, launch
from border_cli.recorder.config import JsonlConfig
from border_cli.registry import register_builtin
from border_cli.replay_buffer.config import UniformConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig

HIDDEN, BATCH_SIZE = [256, 256], 64
SETTLED = 1_000  # updates before the clock starts: threads, caches and allocators have settled
ASLEEP = 1e-6  # samples per update: the actor fills the buffer, then sleeps at its gate
OFF: dict[str, Any] = {"eval_interval": 0, "save_interval": 0}

ROWS: dict[str, tuple[str, int, dict[str, Any]]] = {  # meaning, actors, the trainer's settings
    "actors_0": ("one actor that sleeps", 1, {"samples_per_opt_step": ASLEEP, **OFF}),
    "paced_1": ("1 sample per update", 1, OFF),
    "paced_2": ("1 sample per update", 2, OFF),
    "paced_2_default": ("1 sample per update; evaluates and saves at the defaults", 2, {}),
    "free_1": ("actors and learner as fast as they can", 1, {"samples_per_opt_step": None, **OFF}),
    "free_2": ("actors and learner as fast as they can", 2, {"samples_per_opt_step": None, **OFF}),
}


class Marks(Recorder):
    """Notes the time of every row of metrics; the learner's thread calls it."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[float, float, float]] = {}  # by opt steps

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final  # the first row of a step is the one that its update ended with
        if step.opt_steps not in self._marks:
            samples = metrics["async/samples_total"]
            self._marks[step.opt_steps] = (time.perf_counter(), time.thread_time(), samples)

    def close(self) -> None:
        """Nothing is held."""

    def speed(self, since: int) -> Speed:
        """Of all updates after number `since`."""
        last = max(self._marks)
        wall_s, cpu_s, samples = (
            end - start for start, end in zip(self._marks[since], self._marks[last], strict=True)
        )
        updates = last - since
        return Speed(updates / wall_s, 1e6 * cpu_s / updates, samples / wall_s)


def run_config(num_actors: int, settings: dict[str, Any], updates: int, seed: int) -> RunConfig:
    return RunConfig(
        seed=seed,
        agent=DqnConfig(
            hidden=HIDDEN,
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            target_interval=TARGET_INTERVAL,
            max_grad_norm=None,
        ),
        env=GymConfig(id="CartPole-v1"),
        step_processor=NStepConfig(),
        replay_buffer=UniformConfig(),
        actor_manager=ThreadConfig(num_actors=num_actors),
        trainer=AsyncConfig(max_opt_steps=SETTLED + updates, **settings),
        evaluator=EpisodesConfig(num_episodes=20),
        recorder={"jsonl": JsonlConfig()},
    )


def full_run(name: str, updates: int, seed: int) -> Speed:
    """A run from its launch to its end, final evaluation and save included, but not timed."""
    _, num_actors, settings = ROWS[name]
    config = run_config(num_actors, settings, updates, seed)
    marks = Marks()
    with tempfile.TemporaryDirectory() as folder:
        recorders = [*build_recorders(config, Path(folder), None), marks]
        launch(config, Path(folder), Launch(recorders=recorders))
    return marks.speed(SETTLED)


def measure(names: list[str], updates: int, repetitions: int) -> list[dict[str, Any]]:
    """Floor, row, floor, row, …: each row stands between two floors."""
    floor = BareLoop(HIDDEN, BATCH_SIZE, rows=4_000, seed=0)
    floor.run(SETTLED)
    speeds: dict[str, list[Speed]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    loads: dict[str, list[float]] = defaultdict(list)
    for seed in range(repetitions):
        speeds["bare"].append(floor.run(updates))
        for name in names:
            before = speeds["bare"][-1].updates_per_s
            speeds[name].append(full_run(name, updates, seed))
            speeds["bare"].append(floor.run(updates))
            around = (before + speeds["bare"][-1].updates_per_s) / 2
            ratios[name].append(speeds[name][-1].updates_per_s / around)
            loads[name].append(load())
    rows = [_row("bare", "no actor, nothing recorded", 0, speeds["bare"], [1.0], [load()])]
    for name in names:
        meaning, actors, _ = ROWS[name]
        rows.append(_row(name, meaning, actors, speeds[name], ratios[name], loads[name]))
    return rows


def _row(
    name: str, meaning: str, actors: int, speeds: list[Speed], ratios: list[float], loads: list[float]
) -> dict[str, Any]:
    return {
        "benchmark": "learner",
        "row": name,
        "meaning": meaning,
        "actors": actors,
        "ratio": spread(ratios, 3),
        "updates_per_s": spread([each.updates_per_s for each in speeds], 0),
        "learner_cpu_us": spread([each.learner_us for each in speeds], 0),
        "samples_per_s": spread([each.samples_per_s for each in speeds], 0),
        "load": spread(loads, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments = parser.parse_args()
    register_builtin()
    machine = facts()
    for row in measure(arguments.rows, arguments.updates, arguments.repetitions):
        print(json.dumps({**row, "updates": arguments.updates, **machine}), flush=True)


if __name__ == "__main__":
    main()
