"""Samples per update: requested and actual.

    python -m benchmarks.ratio [--repetitions 1] [--ratios 0.25 1 4 16] [--managers sync …]

A full run of DQN on CartPole with two actors that send 20 samples at a time, as in the tuned values
for CartPole. `got` is the slope of a line fitted to the samples received as a function of the
updates after the warm-up: samples arrive in bursts, and a fitted line depends little on where in a
burst the window starts. `ahead` is the largest number of samples beyond the requested ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.full_run import Setup, full_run, missing
from benchmarks.isolated import call
from benchmarks.table import Reading, column, emit, make_parser, ratios, say, summary, take_turns
from benchmarks.window import Span

MANAGERS = ["sync", "serial", "thread", "process"]
RATIOS = [0.25, 1.0, 4.0, 16.0]
WARM_UP = 1_000
SETTLED = 200  # updates
MIN_SAMPLES, MAX_SAMPLES, UPDATES = 1_000, 10_000, 2_000


def run(manager: str, ratio: float, seed: int) -> Reading:
    """Measures one of our runs."""
    trainer = {
        "samples_per_opt_step": ratio,
        "record_interval": 1,
        "warmup_period": WARM_UP,
    }
    setup = Setup(manager=manager, actors=2, n_buffer=20, trainer=trainer)
    samples = min(max(UPDATES * ratio, MIN_SAMPLES), MAX_SAMPLES)
    window = full_run(setup, Span(settled=SETTLED, updates=round(samples / ratio)), seed)
    opt_steps, received, _ = np.array(window.trace).T
    got, _ = np.polyfit(opt_steps, received, 1)
    ahead = (received - WARM_UP - ratio * opt_steps).max()
    return {"got": float(got), "ahead": float(ahead), "updates": len(opt_steps)}


def _run(manager: str, ratio: float, seed: int) -> Reading:
    reading: Reading = call("benchmarks.ratio:run", manager=manager, ratio=ratio, seed=seed)
    return reading


def line(ratio: float, readings: list[Reading]) -> dict[str, Any]:
    """Returns one row of the table."""
    got = column(readings, "got")
    return {"asked": ratio, "to_asked": ratios(got, [ratio for _ in got]), **summary(readings)}


def main() -> None:
    parser = make_parser(__doc__, repetitions=1)
    parser.add_argument(
        "--ratios", type=float, nargs="+", default=RATIOS, help="samples per update"
    )
    parser.add_argument("--managers", nargs="+", choices=MANAGERS, default=MANAGERS)
    arguments = parser.parse_args()
    contenders: dict[str, Callable[[int], Reading]] = {}
    requested: dict[str, float] = {}
    for manager in arguments.managers:
        if missing(Setup(manager=manager)):
            say(f"skipped: unknown actor_manager={manager}")
            continue
        for ratio in arguments.ratios:
            name = f"{manager}_{ratio:g}"
            requested[name] = ratio
            contenders[name] = partial(_run, manager, ratio)
    readings = take_turns(contenders, arguments.repetitions)
    for name, ratio in requested.items():
        emit("ratio", name, line(ratio, readings[name]))


if __name__ == "__main__":
    main()
