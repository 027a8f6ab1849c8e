"""Samples per second of environments that sleep 5 ms per step, by number of actors.

    python -m benchmarks.scaling [--repetitions 3] [--seconds 4] [--managers thread process ray]

A full `async` run of DQN ([256, 256], batch 64) whose learner makes one update per 16 samples.
Timing starts one second after every actor has delivered samples. The rate is the slope of a line
fitted to the samples over time: they arrive in bursts, and a fitted line depends little on where
in a burst the window starts or ends.
`efficiency` is the rate divided by `actors / sleep`, with the actual length of a 5 ms sleep
(`sleep_ms`, measured in the same run, alone in a process); `of_nominal` divides by `actors / 5 ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.full_run import Setup, full_run, missing
from benchmarks.isolated import call
from benchmarks.sleeping_env import STEP_S
from benchmarks.table import (
    Reading,
    Readings,
    column,
    emit,
    make_parser,
    ratios,
    say,
    spread,
    summary,
    take_turns,
)
from benchmarks.window import Span

ACTORS = [1, 2, 4, 8, 16, 32]
MANAGERS = ["thread", "process"]
ON_REQUEST = ["ray"]  # needs pip install "border-cli[ray]"
SLEEP = "sleep"
PACED = {"warmup_period": 100, "record_interval": 10}


def run(manager: str, actors: int, seconds: float, per_update: float, seed: int) -> Reading:
    """Measures one of our runs."""
    setup = Setup(
        manager=manager,
        actors=actors,
        env_id="benchmarks.sleeping_env:Sleeping-v0",
        trainer=PACED | {"samples_per_opt_step": per_update},
    )
    window = full_run(setup, Span(settled=1, settled_s=1.0, seconds=seconds), seed)
    _, received, at_s = np.array(window.trace).T
    rate, _ = np.polyfit(at_s - at_s[0], received, 1)
    return {**window.reading(), "samples_per_s": float(rate)}


def _run(manager: str, actors: int, seconds: float, per_update: float, seed: int) -> Reading:
    reading: Reading = call(
        "benchmarks.scaling:run",
        manager=manager,
        actors=actors,
        seconds=seconds,
        per_update=per_update,
        seed=seed,
    )
    return reading


def _sleep(seed: int) -> Reading:
    del seed
    reading: Reading = call("benchmarks.sleeping_env:measure", steps=400)
    return reading


def line(actors: int, readings: list[Reading], sleeps: list[Reading]) -> dict[str, Any]:
    """Returns one row of the table."""
    rates, sleep_s = column(readings, "samples_per_s"), column(sleeps, "sleep_s")
    return {
        "actors": actors,
        "efficiency": ratios(rates, [actors / seconds for seconds in sleep_s]),
        "of_nominal": ratios(rates, [actors / STEP_S for _ in rates]),
        "sleep_ms": spread([1e3 * seconds for seconds in sleep_s]),
        **summary(readings),
    }


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="timed seconds per run (default: 4)"
    )
    parser.add_argument(
        "--samples-per-update", type=float, default=16.0, help="samples per update (default: 16)"
    )
    parser.add_argument("--managers", nargs="+", choices=[*MANAGERS, *ON_REQUEST], default=MANAGERS)
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS, help="numbers of actors")
    arguments = parser.parse_args()
    contenders: dict[str, Callable[[int], Reading]] = {SLEEP: _sleep}
    rows: dict[str, int] = {}  # name -> actors
    for manager in arguments.managers:
        if missing(Setup(manager=manager)):
            say(f"skipped: unknown actor_manager={manager}")
            continue
        for actors in arguments.actors:
            name = f"{manager}_{actors}"
            rows[name] = actors
            contenders[name] = partial(
                _run, manager, actors, arguments.seconds, arguments.samples_per_update
            )
    readings: Readings = take_turns(contenders, arguments.repetitions)
    for name, actors in rows.items():
        emit("scaling", name, line(actors, readings[name], readings[SLEEP]))


if __name__ == "__main__":
    main()
