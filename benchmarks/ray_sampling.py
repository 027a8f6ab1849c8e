"""Samples/s through Ray: ours, RLlib's DQN and TorchRL's Ray collector, for the same task.

    pip install -e ".[bench-ray]"
    python -m benchmarks.ray_sampling [--repetitions 3] [--seconds 10] [--rows ours rllib …]

Four actors with eight environments of CartPole-v1 each, in CartPole's own vector implementation; a
Q-network [256, 256] acts epsilon-greedily; every transition arrives in the learner's replay buffer
(TorchRL: in the learner's process). `ours` and `rllib` learn at the same time, at their natural
rates: ours without a rate limit, in a thread that uses a core; RLlib once per round of samples. The
`asleep` rows make almost no updates. The `paced` rows make one update per sample, with one
environment per actor: updates/s under `ray` against `process`. Each measurement runs in its own
process; all contenders take turns.
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

ACTORS, NUM_ENVS = 4, 8
FREE = {"samples_per_opt_step": None, "record_interval": 10}
# One update per 2,000 samples: the learner spends its time receiving.
ASLEEP = {"samples_per_opt_step": 2_000.0, "record_interval": 1, "sync_interval": 1}
OURS = {
    "ours": Setup(manager="ray", actors=ACTORS, num_envs=NUM_ENVS, trainer=FREE),
    "ours_asleep": Setup(manager="ray", actors=ACTORS, num_envs=NUM_ENVS, trainer=ASLEEP),
    "ours_process": Setup(manager="process", actors=ACTORS, num_envs=NUM_ENVS, trainer=FREE),
}
PACED = {"samples_per_opt_step": 1.0}
for _manager in ("ray", "process"):
    OURS[f"paced_{_manager}"] = Setup(manager=_manager, actors=ACTORS, trainer=PACED)
PEERS = {"rllib": "rllib", "rllib_asleep": "rllib", "torchrl": "torchrl"}
PACKAGES = {"rllib": "ray", "rllib_asleep": "ray", "torchrl": "torchrl"}
AGAINST = {"ours": ("rllib", "torchrl"), "ours_asleep": ("rllib_asleep", "torchrl")}
ROWS = [*OURS, *PEERS]


def ours(name: str, seconds: float, seed: int) -> Reading:
    """Measures one of our runs."""
    span = Span(settled=1_000 if "paced" in name else 5, settled_s=1.0, seconds=seconds)
    return full_run(OURS[name], span, seed).reading()


def _measure(name: str, seconds: float, seed: int) -> Reading:
    shared: dict[str, Any] = {"seconds": seconds, "seed": seed}
    reading: Reading
    if name in OURS:
        reading = call("benchmarks.ray_sampling:ours", name=name, **shared)
    else:
        shared |= {"actors": ACTORS, "num_envs": NUM_ENVS}
        if PEERS[name] == "rllib":
            shared["learning"] = name == "rllib"
        reading = call(f"benchmarks.ray_peers:{PEERS[name]}", **shared)
    return reading


def _skipped(name: str) -> str | None:
    """Returns the reason to skip a row, or None."""
    if name in OURS and missing(OURS[name]):
        return f"unknown actor_manager={OURS[name].manager}"
    if name in PEERS and not installed(PACKAGES[name]):
        return 'needs pip install "border-cli[bench-ray]"'
    return None


def line(name: str, readings: Readings) -> dict[str, Any]:
    """Returns one row of the table."""
    rates = column(readings[name], "samples_per_s")
    content: dict[str, Any] = {
        f"to_{other}": ratios(rates, column(readings[other], "samples_per_s"))
        for other in AGAINST.get(name, ())
        if other in readings
    }
    if name == "paced_ray" and "paced_process" in readings:
        for value in ("updates_per_s", "learner_us"):
            pair = column(readings[name], value), column(readings["paced_process"], value)
            content[f"{value}_to_paced_process"] = ratios(*pair)
    return content | summary(readings[name])


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="timed seconds per contender (default: 10)"
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    arguments = parser.parse_args()
    contenders = contenders_of(
        arguments.rows,
        lambda name, seed: _measure(name, arguments.seconds, seed),
        _skipped,
    )
    readings = take_turns(contenders, arguments.repetitions)
    for name in readings:
        emit("ray_sampling", name, line(name, readings))


if __name__ == "__main__":
    main()
