"""Resident memory of a run on Ray while 10,000,000 samples pass through it.

    python -m benchmarks.ray_memory [--samples 10000000]

Four actors with eight environments of CartPole-v1 each on a local Ray, no rate limit, a replay
buffer of 100,000. Memory is read after every tenth of the samples, in MB: the learner, its child
process (which makes the calls), the actors and Ray's own processes, all without shared pages; the
contents of /dev/shm; and what Ray has spilled to disk. `growth_percent` is the growth from the
second reading to the last.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.full_run import Setup, recorded_run
from benchmarks.ray_sampling import ACTORS, FREE, NUM_ENVS
from benchmarks.table import emit, say
from border_cli.core.output import Recorder, RecordStep
from border_cli.core.stop import StopFlag
from border_cli.core.types import Metrics

READINGS = 10
SHARED = Path("/dev/shm")
RAY_FILES = Path(tempfile.gettempdir())
PARTS = ("learner", "broker", "actors", "ray", "shared", "spilled")


class Over(BaseException):
    """Raised when all samples have passed."""


class MemoryRecorder(Recorder):
    """Reads memory after every tenth of the samples; ends the run after the last reading."""

    def __init__(self, samples: int, stop: StopFlag) -> None:
        self._samples, self._stop = samples, stop
        self.readings: list[dict[str, float]] = []

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del step
        samples = metrics.get("async/samples_total", 0.0)
        if final or samples < (len(self.readings) + 1) * self._samples / READINGS:
            return
        self.readings.append({"samples": samples, **memory_mb()})
        say(f"  {self.readings[-1]}")
        if len(self.readings) == READINGS:
            self._stop.request(Over())

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def memory_mb() -> dict[str, float]:
    """Returns the memory of this process and its descendants, grouped by role."""
    learner = psutil.Process()
    memory = dict.fromkeys(PARTS, 0.0) | {"learner": _own(learner)}
    for process in learner.children(recursive=True):
        with suppress(psutil.Error):  # the process has just ended
            memory[_part(process)] += _own(process)
    memory["shared"] = _bytes_in(SHARED)
    memory["spilled"] = sum(
        _bytes_in(folder) for folder in RAY_FILES.glob("border_ray_*/session_*/ray_spilled*")
    )
    return {name: round(value / 2**20, 1) for name, value in memory.items()}


def _part(process: psutil.Process) -> str:
    title = " ".join(process.cmdline())
    if title.startswith("ray::"):
        return "actors"
    return "ray" if "/ray/" in title else "broker"  # includes the fork server


def _own(process: psutil.Process) -> float:
    memory = process.memory_info()
    return float(memory.rss - memory.shared)


def _bytes_in(folder: Path) -> float:
    return float(sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--manager", default="ray")
    arguments = parser.parse_args()
    stop = StopFlag()
    recorder = MemoryRecorder(arguments.samples, stop)
    setup = Setup(manager=arguments.manager, actors=ACTORS, num_envs=NUM_ENVS, trainer=FREE)
    with suppress(Over):
        recorded_run(setup, recorder, stop, seed=0)
    second, last = recorder.readings[1], recorder.readings[-1]
    growth = {
        name: round(100 * (last[name] / second[name] - 1), 2) for name in PARTS if second[name]
    }
    line = {"samples": last["samples"], "growth_percent": growth, "readings": recorder.readings}
    emit("ray_memory", arguments.manager, line)


if __name__ == "__main__":
    main()
