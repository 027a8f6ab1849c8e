"""The learner inside a full `async` run, against bare torch loops that make the same updates.

    python -m benchmarks.learner [--updates 3000] [--repetitions 5] [--rows paced_1 paced_2 …]

CartPole-v1, [256, 256], batch 64, Huber, no double Q, no clipping, hard target copies. Each row is
a run of the real thing (`border_cli.launch.launch`: actor threads, gate, channel, replay buffer,
watchdog, weights published and metrics written to metrics.jsonl every 100 updates), timed from
update 1,000 on. Within what is timed nothing is evaluated or saved, unless the row says so.

Floors and rows take turns, and `ratio` compares each run with the floors just before and after it.
On a machine with other work the clock says little: `cpu_ratio` compares the CPU time that the
floor's thread takes for an update with that of the learner's thread, and `cpu_ratio_all_threads`
with that of the whole process. Where the actors have cores of their own the clock's ratio lies
between these two, because the learner waits for the interpreter lock at most as long as actors
compute. Prints one line of JSON per row.
"""

from __future__ import annotations

from benchmarks.machine import facts, load, one_thread_for_blas, spread

one_thread_for_blas()

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bare import (
    LEARNING_RATE,
    TARGET_INTERVAL,
    BareLoop,
    SameKernelsLoop,
    Speed,
    now,
    random_play,
    speed_between,
)
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

BATCH_SIZE = 64
ROWS_STORED = 4_000  # of the floors, about as many as a run gathers
FLOORS = {"bare": BareLoop, "bare_same_kernels": SameKernelsLoop}
OFF: dict[str, Any] = {"eval_interval": 0, "save_interval": 0}
# The actor fills the buffer, then sleeps at its gate: no update ever pays for another sample.
ASLEEP = {"samples_per_opt_step": 1e-6, **OFF}
# An update may take 30 ms here, so the run ends by the clock.
FREE = {"samples_per_opt_step": None, "record_interval": 10, "max_time_s": 6.0, **OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to run."""

    meaning: str
    actors: int
    settings: dict[str, Any]  # of the trainer
    settled: int = 1_000  # updates before the clock starts: threads, caches, allocators


RUNS = {
    "actors_0": Row(meaning="its one actor sleeps", actors=1, settings=ASLEEP),
    "paced_1": Row(meaning="1 sample per update", actors=1, settings=OFF),
    "paced_2": Row(meaning="1 sample per update", actors=2, settings=OFF),
    "defaults_2": Row(
        meaning="1 sample per update, evaluates and saves at the default intervals",
        actors=2,
        settings={},
    ),
    "free_1": Row(meaning="each as fast as it can", actors=1, settings=FREE, settled=20),
    "free_2": Row(meaning="each as fast as it can", actors=2, settings=FREE, settled=20),
}


class Marks(Recorder):
    """Notes the time of every row of metrics; the learner's thread calls it."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[tuple[float, float, float], float]] = {}  # by opt steps

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final  # the first row of a step is the one that its update ended with
        self._marks.setdefault(step.opt_steps, (now(), metrics["async/samples_total"]))

    def close(self) -> None:
        """Nothing is held."""

    def speed(self, since: int) -> Speed:
        """Of all updates after number `since`."""
        last = max(self._marks)
        (began, samples), (ended, samples_after) = self._marks[since], self._marks[last]
        return speed_between(began, ended, last - since, samples_after - samples)


def run_config(row: Row, updates: int, seed: int) -> RunConfig:
    return RunConfig(
        seed=seed,
        agent=DqnConfig(
            hidden=[256, 256],
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            target_interval=TARGET_INTERVAL,
            max_grad_norm=None,
        ),
        env=GymConfig(id="CartPole-v1"),
        step_processor=NStepConfig(),
        replay_buffer=UniformConfig(),
        actor_manager=ThreadConfig(num_actors=row.actors),
        trainer=AsyncConfig(max_opt_steps=row.settled + updates, **row.settings),
        evaluator=EpisodesConfig(),
        recorder={"jsonl": JsonlConfig()},
    )


def full_run(row: Row, updates: int, seed: int) -> Speed:
    """A run from launch to end; its last evaluation and save are made, but not timed."""
    config = run_config(row, updates, seed)
    marks = Marks()
    with tempfile.TemporaryDirectory() as folder:
        recorders = [*build_recorders(config, Path(folder), None), marks]
        launch(config, Path(folder), Launch(recorders=recorders))
    return marks.speed(row.settled)


class Table:
    """Runs that stand between floors, and what follows from them."""

    def __init__(self, updates: int) -> None:
        self._updates = updates
        ring = random_play(ROWS_STORED, seed=0)
        self._floors = {
            name: floor(ring, ROWS_STORED, batch_size=BATCH_SIZE, seed=0)
            for name, floor in FLOORS.items()
        }
        self._speeds: dict[str, list[Speed]] = defaultdict(list)
        self._against: dict[str, list[dict[str, Speed]]] = defaultdict(list)
        self._loads: dict[str, list[float]] = defaultdict(list)
        self._measure_floors()  # the first is slow

    def _measure_floors(self) -> dict[str, Speed]:
        return {name: floor.run(self._updates // 2) for name, floor in self._floors.items()}

    def repeat(self, names: list[str], seed: int) -> None:
        """Floors, run, floors, run, …, floors."""
        before = self._measure_floors()
        for name in names:
            speed = full_run(RUNS[name], self._updates, seed)
            after = self._measure_floors()
            around = {floor: _mean(before[floor], after[floor]) for floor in FLOORS}
            self._speeds[name].append(speed)
            self._against[name].append(around)
            self._loads[name].append(load())
            before = after

    def lines(self) -> list[dict[str, Any]]:
        floors = [each for against in self._against.values() for each in against]
        lines = [_speeds(name, [each[name] for each in floors]) for name in FLOORS]
        for name, speeds in self._speeds.items():
            row, pairs = RUNS[name], list(zip(speeds, self._against[name], strict=True))
            line = _speeds(name, speeds) | {"meaning": row.meaning, "actors": row.actors}
            for floor in FLOORS:
                line[f"to_{floor}"] = _ratios([(run, around[floor]) for run, around in pairs])
            lines.append(line | {"load": spread(self._loads[name], 2)})
        return lines


def _mean(before: Speed, after: Speed) -> Speed:
    return Speed(*((first + second) / 2 for first, second in zip(before, after, strict=True)))


def _ratios(pairs: list[tuple[Speed, Speed]]) -> dict[str, Any]:
    ratios = {
        "ratio": [run.updates_per_s / floor.updates_per_s for run, floor in pairs],
        "cpu_ratio": [floor.learner_us / run.learner_us for run, floor in pairs],
        "cpu_ratio_all_threads": [floor.learner_us / run.process_us for run, floor in pairs],
    }
    return {name: spread(values, 3) for name, values in ratios.items()}


def _speeds(name: str, speeds: list[Speed]) -> dict[str, Any]:
    columns = zip(Speed._fields, zip(*speeds, strict=True), strict=True)
    return {"row": name} | {field: spread(list(values), 0) for field, values in columns}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=3_000, help="timed, of each run")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rows", nargs="+", choices=list(RUNS), default=list(RUNS))
    arguments = parser.parse_args()
    register_builtin()
    table = Table(arguments.updates)
    for seed in range(arguments.repetitions):
        table.repeat(arguments.rows, seed)
    for line in table.lines():
        print(json.dumps({"benchmark": "learner", **line, **facts()}), flush=True)


if __name__ == "__main__":
    main()
