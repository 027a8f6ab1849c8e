"""The same SAC in border_cli and Stable-Baselines3: Pendulum-v1, one update per env step.

    python -m benchmarks.matched_sac [--repetitions 3] [--updates 8000] [--threads 1 2]

Matched: [256, 256], batch 256, two critics, Adam at 3e-4, gamma 0.99, tau 0.005, uniform replay of
100,000, a learned entropy coefficient, 1,000 random steps before the first update, no evaluations,
no checkpoints. Timed from update 500. Ours are full runs of `trainer=async` with one actor; the
`…_medium` rows set `agent.matmul_precision=medium`, which uses bfloat16 for matrix products if the
processor supports it. Our runs flush denormals and retain freed memory; SB3 runs as installed.

`return_1_of_4` to `return_4_of_4` are the mean returns over the quarters of the training episodes
(ours: of the rows with a return), to verify that all contenders learn. Not matched: the random
numbers and the acting weights (published every 100 updates). Each measurement runs in its own
process; all contenders take turns. With two threads, nothing else may run on a machine with two
cores. `cpu_to_…` compares the CPU time per update of the learning thread, which is meaningful only
with one thread.
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
    make_parser,
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
    """Measures one of our runs."""
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
    """Returns one row of the table."""
    content: dict[str, Any] = {}
    theirs = f"{SB3}_{name.rpartition('_')[2]}"
    if name != theirs and theirs in readings:
        pair = (column(readings[row], "updates_per_s") for row in (name, theirs))
        content[f"updates_per_s_to_{SB3}"] = ratios(*pair)
        cpu = (column(readings[row], "learner_us") for row in (theirs, name))
        content[f"cpu_to_{SB3}"] = ratios(*cpu)
    return content | summary(readings[name])


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument(
        "--updates", type=int, default=8_000, help="timed updates per contender (default: 8000)"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch threads")
    arguments = parser.parse_args()
    names = [*PRECISIONS, SB3]
    if not installed("stable-baselines3"):
        say('skipped: sb3 (needs pip install "border-cli[bench]")')
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
