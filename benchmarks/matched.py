"""The same DQN in three implementations: 20,000 env steps of CartPole-v1, one update per step.

    python -m benchmarks.matched [--repetitions 5] [--updates 18000] [--rows bare sync …]

Matched: [256, 256], batch 64, uniform replay of 100,000, Adam at 5e-4, gamma 0.99, Huber loss, no
double Q, hard target updates every 500 updates, epsilon from 1 to 0.05 over 10,000 env steps, 1,000
random steps before the first update, no evaluations, no checkpoints, one torch thread. Timed from
update 1,000 (env step 2,000) to the last; `wall_s` excludes imports.

Our runs and the bare loop flush denormals. `bare` acts in numpy, steps its environment and learns
in one loop with `torch.optim.Adam(fused=True)` (`playing.py`). Ours are full runs with rate
limiter, checks and metrics. The `clipped` rows clip the gradient norm at 10, as Stable-Baselines3
always does, and are compared with it; the others are compared with `bare`. Not matched: the random
numbers and the acting weights (`async` publishes every 100 updates). Each measurement runs in its
own process; all contenders take turns. `cpu_to_…` compares the CPU time per update of the learning
threads (`learner_us`), which includes acting if that thread acts.
"""

from __future__ import annotations

from typing import Any

from benchmarks.full_run import Setup, full_run, missing
from benchmarks.isolated import call
from benchmarks.machine import installed
from benchmarks.table import (
    Reading,
    Readings,
    column,
    contenders_of,
    emit,
    make_parser,
    ratios,
    summary,
    take_turns,
)
from benchmarks.window import Span

WARM_UP = 1_000
SETTLED = 1_000
CLIP = 10.0
BARE, SB3 = "bare", "sb3"
OURS = {
    "sync": Setup(manager="sync"),
    "async_thread": Setup(manager="thread"),
    "async_process": Setup(manager="process"),
    "sync_clipped": Setup(manager="sync", max_grad_norm=CLIP),
    "async_process_clipped": Setup(manager="process", max_grad_norm=CLIP),
}
ROWS = [BARE, *OURS, SB3]


def ours(name: str, updates: int, seed: int) -> Reading:
    """Measures one of our runs."""
    return full_run(OURS[name], Span(settled=SETTLED, updates=updates), seed).reading()


def _measure(name: str, updates: int, seed: int) -> Reading:
    shared: dict[str, Any] = {"updates": updates, "seed": seed}
    reading: Reading
    if name in OURS:
        reading = call("benchmarks.matched:ours", name=name, **shared)
    else:
        module = "playing" if name == BARE else "stable_baselines"
        shared |= {"warm_up": WARM_UP, "settled": SETTLED}
        reading = call(f"benchmarks.{module}:matched", **shared)
    return reading


def _skipped(name: str) -> str | None:
    """Returns the reason to skip a row, or None."""
    if name in OURS and missing(OURS[name]):
        return f"unknown actor_manager={OURS[name].manager}"
    if name == SB3 and not installed("stable-baselines3"):
        return 'needs pip install "border-cli[bench]"'
    return None


def line(name: str, readings: Readings) -> dict[str, Any]:
    """Returns one row of the table."""
    content: dict[str, Any] = {}
    other = SB3 if name.endswith("clipped") else BARE
    if name in OURS and other in readings:
        for value in ("updates_per_s", "wall_s"):
            pair = column(readings[name], value), column(readings[other], value)
            content[f"{value}_to_{other}"] = ratios(*pair)
        cpu = column(readings[other], "learner_us"), column(readings[name], "learner_us")
        content[f"cpu_to_{other}"] = ratios(*cpu)
    return content | summary(readings[name])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--updates", type=int, default=18_000, help="timed updates per contender (default: 18000)"
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    arguments = parser.parse_args()
    contenders = contenders_of(
        arguments.rows,
        lambda name, seed: _measure(name, arguments.updates, seed),
        _skipped,
    )
    readings = take_turns(contenders, arguments.repetitions)
    for name in readings:
        emit("matched", name, line(name, readings))


if __name__ == "__main__":
    main()
