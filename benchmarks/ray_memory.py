"""Resident memory of a run on Ray while 10,000,000 samples pass through it.

    python -m benchmarks.ray_memory [--samples 10000000]

Four actors with eight environments of CartPole-v1 each on a local Ray, no rate limit, a replay
buffer of 100,000. After every tenth of the samples a reading in MB: the learner, its child (which
owns the calls), the actors, and Ray's own processes, each without what it shares with others; what
lies in shared memory (/dev/shm); and the bytes that Ray has spilled to the disk. `growth` is what
each gained from the second reading to the last, in per cent.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.full_run import Setup, full_run
from benchmarks.isolated import call
from benchmarks.ray_sampling import ACTORS, FREE, NUM_ENVS
from benchmarks.table import emit, say
from benchmarks.window import Span, Window
from border_cli.core.output import RecordStep
from border_cli.core.types import Metrics

READINGS = 10
SHARED = Path("/dev/shm")
SPILLED = "ray_spilled_objects*"


class MemoryWindow(Window):
    """Also reads memory whenever another tenth of the samples has passed."""

    samples = 10_000_000

    def __init__(self, span: Span, **rest: Any) -> None:
        super().__init__(span, **rest)
        self.readings: list[dict[str, float]] = []

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        taken = metrics.get("async/samples_total", 0.0)
        if taken >= (len(self.readings) + 1) * self.samples / READINGS:
            self.readings.append({"samples": taken, **memory_mb()})
            say(f"  {self.readings[-1]}")
        super().write(step, metrics, final=final)


def memory_mb() -> dict[str, float]:
    """Of this process and all that descend from it, by what they are."""
    learner = psutil.Process()
    found = {"learner": _own(learner), "broker": 0.0, "actors": 0.0, "ray": 0.0}
    for process in learner.children(recursive=True):
        try:
            found[_part(process, learner)] += _own(process)
        except psutil.Error:  # it has just ended
            continue
    found["shared"] = sum(
        each.stat().st_blocks * 512 for each in SHARED.iterdir() if each.is_file()
    )
    return {name: round(value / 2**20, 1) for name, value in found.items()}


def _part(process: psutil.Process, learner: psutil.Process) -> str:
    title = " ".join(process.cmdline())
    if title.startswith("ray::"):
        return "actors"
    python = "python" in process.name()
    return "broker" if python and "ray/" not in title and "ray." not in title else "ray"


def _own(process: psutil.Process) -> float:
    memory = process.memory_info()
    return float(memory.rss - memory.shared)
