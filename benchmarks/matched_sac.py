"""The same SAC by us and by Stable-Baselines3: Pendulum-v1, one update for each env step.

    python -m benchmarks.matched_sac [--repetitions 3] [--updates 8000] [--threads 1 2]

Matched: [256, 256], batch 256, two critics, Adam at 3e-4, gamma 0.99, tau 0.005, uniform replay of
100,000, a learned weight of entropy, 1,000 random steps before the first update, no evaluation and
no checkpoint. Timed from update 500 on. Ours are whole runs of `trainer=async` with one actor; rows
`…_medium` have `agent.matmul_precision=medium`, which takes bfloat16 for products where the
processor has it. Denormals are flushed and freed memory is kept in ours; theirs is as it comes.

`return_1_of_4` to `return_4_of_4` are the mean returns of the quarters of the training episodes
(ours: of the rows that have some), to tell that all learn alike. Not matched: the random numbers,
and the weights that act (published every 100 updates). Each measurement is a process of its own,
and all take turns, so that ratios are of neighbours in time; with two threads nothing else may run
on a machine of two cores. `cpu_to_…` compares the CPU time of the learning thread for an update,
which says something of one thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.full_run import Setup, full_run
from benchmarks.isolated import call
from benchmarks.machine import installed
from benchmarks.table import (
    Reading,
    Readings,
    column,
    emit,
    learning,
    parser,
    ratios,
    say,
    summary,
    take_turns,
)
from benchmarks.window import Span
from border_cli.agent.config import MatmulPrecision, SacConfig

WARM_UP, SETTLED = 1_000, 500
PRECISIONS = {"ours": MatmulPrecision.highest, "ours_medium": MatmulPrecision.medium}
SB3 = "sb3"


def ours(precision: str, threads: int, updates: int, seed: int) -> Reading:
    """One of our runs."""
    agent = SacConfig(
        hidden=[256, 256],
        batch_size=256,
        learning_rate=3e-4,
        num_threads=threads,
        matmul_precision=MatmulPrecision(precision),
    )
    setup = Setup(agent=agent, env_id="Pendulum-v1", trainer={"warmup_period": WARM_UP})
    window = full_run(setup, Span(settled=SETTLED, updates=updates), seed)
    return {**window.reading(), **learning(window.returns)}


def _measure(name: str, threads: int, updates: int, seed: int) -> Reading:
    shared: dict[str, Any] = {"threads": threads, "updates": updates, "seed": seed}
    reading: Reading
    if name == SB3:
        span = {"warm_up": WARM_UP, "settled": SETTLED}
        reading = call("benchmarks.stable_baselines:matched_sac", **shared, **span)
    else:
        precision = PRECISIONS[name].value
        reading = call("benchmarks.matched_sac:ours", precision=precision, **shared)
    return reading


def line(name: str, readings: Readings) -> dict[str, Any]:
    """One row of the table."""
    content: dict[str, Any] = {}
    theirs = f"{SB3}_{name.rpartition('_')[2]}"
    if name != theirs and theirs in readings:
        pair = (column(readings[each], "updates_per_s") for each in (name, theirs))
        content[f"updates_per_s_to_{SB3}"] = ratios(*pair)
        cpu = (column(readings[each], "learner_us") for each in (theirs, name))
        content[f"cpu_to_{SB3}"] = ratios(*cpu)
    return content | summary(readings[name])


def main() -> None:
    made = parser(__doc__, repetitions=3)
    made.add_argument("--updates", type=int, default=8_000, help="timed, of each contender")
    made.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = made.parse_args()
    names = [*PRECISIONS, SB3]
    if not installed("stable-baselines3"):
        say('skipped: sb3, it needs pip install "border-cli[bench]"')
        names.remove(SB3)
    contenders: dict[str, Callable[[int], Reading]] = {
        f"{name}_{threads}": partial(_measure, name, threads, arguments.updates)
        for threads in arguments.threads
        for name in names
    }
    readings = take_turns(contenders, arguments.repetitions)
    for name in readings:
        emit("matched_sac", name, line(name, readings))


if __name__ == "__main__":
    main()
