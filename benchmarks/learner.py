"""The learner inside a full `async` run, against bare torch loops that make the same updates.

    python -m benchmarks.learner [--updates 3000] [--repetitions 5] [--rows paced_1 paced_2 …]

CartPole-v1, [256, 256], batch 64, Huber, no double Q, no clipping, hard target copies. Each row is
a run of the real thing (`border_cli.launch.launch`: actor threads, gate, channel, replay buffer,
watchdog, weights published and metrics written to metrics.jsonl every 100 updates), timed from
update 1,000 on. Within what is timed nothing is evaluated or saved, unless the row says so.

Floors and rows take turns, and `ratio` compares each run with the floors just before and after it.
On a machine with other work the clock says little: `cpu_ratio` compares the CPU time that the
floor's thread takes for an update with that of the learner's thread, and `cpu_ratio_all_threads`
with that of the whole process. With cores to spare the clock's ratio should lie between these two:
the learner waits for the interpreter lock no longer than actors compute.
Prints one line of JSON per row.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import Any

from benchmarks.bare import BareLoop, SameKernelsLoop, Speed, random_play
from benchmarks.full_run import BATCH_SIZE, RUNS, full_run
from benchmarks.machine import facts, load, spread
from border_cli.registry import register_builtin

ROWS_STORED = 4_000  # of the floors, about as many as a run gathers
FLOORS = {"bare": BareLoop, "bare_same_kernels": SameKernelsLoop}


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
