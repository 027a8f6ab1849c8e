"""Updates/s of the learner in a full `async` run, against bare PyTorch loops with the same updates.

    python -m benchmarks.learner [--repetitions 5] [--updates 3000] [--rows process_paced_1 …]

CartPole-v1, [256, 256], batch 64, Huber loss, no double Q, no clipping, hard target updates,
denormals flushed, one torch thread. Each row is a full run (`run_job` of `launch.run`:
actors, rate limiter, channel, replay buffer, watchdog, weights published and metrics written to
metrics.jsonl every 100 updates), timed from update 1,000. There are no evaluations and no
checkpoints, unless the row says so.

A repetition is one process: baselines, run, baselines, run, …, baselines. `to_bare` compares each
run with the baselines just before and after it: `bare` uses `torch.optim.Adam(fused=True)`,
`bare_same_kernels` calls the fused kernel directly, as `agent.backend=torch` does, and
`bare_written_out` also has hand-written gradients. `cpu_to_bare` compares the CPU time per
update of the two threads, which is more reliable than wall time on a busy machine. `cores` is the
CPU time of all processes of the run divided by wall time.

The `free` rows have no rate limit. `samples_to_bare_actor` compares their samples/s with a bare
actor process (`bare_actor.py`) that runs alone, just before and after. `cpu_samples_to_bare_actor`
compares the CPU time per sample, `actors_us`, of all threads and processes except the learner's
thread. `bare_both` is the limit of the machine: the bare loop and the bare actor run at the same
time, independently of each other.
"""

from __future__ import annotations

from typing import Any

from benchmarks.full_run import OFF, Setup, full_run, missing
from benchmarks.isolated import call
from benchmarks.learner_floors import FLOORS, Floors, mean
from benchmarks.machine import Others
from benchmarks.table import Reading, column, emit, make_parser, ratios, say, summary
from benchmarks.window import Span

BOTH = "bare_both"
SETTLED = 1_000  # updates before the clock starts, to warm up threads, caches, allocators
# The actor fills the buffer, then sleeps: the rate limiter never grants it another sample.
ASLEEP = {"samples_per_opt_step": 1e-6}
PACED_4 = {"samples_per_opt_step": 4.0}
FREE = {"samples_per_opt_step": None}
FREE_THREADS = FREE | {"record_interval": 10}  # an update may take 30 ms
FREE_MEANING = "learner and actors as fast as possible"
RUNS = {
    "thread_asleep": Setup(meaning="the only actor sleeps", trainer=ASLEEP),
    "thread_paced_1": Setup(meaning="1 sample per update"),
    "thread_paced_1_actors_2": Setup(meaning="1 sample per update", actors=2),
    "thread_paced_4": Setup(meaning="4 samples per update", trainer=PACED_4),
    "thread_paced_4_actors_2": Setup(meaning="4 samples per update", actors=2, trainer=PACED_4),
    "thread_evaluating": Setup(
        meaning="1 sample per update, evaluates and saves at the default intervals",
        actors=2,
        trainer=dict.fromkeys(OFF, 1_000) | {"save_interval": 5_000},
    ),
    "process_paced_1": Setup(meaning="1 sample per update", manager="process"),
    "process_paced_4": Setup(meaning="4 samples per update", manager="process", trainer=PACED_4),
    "process_free": Setup(meaning=FREE_MEANING, manager="process", trainer=FREE),
    "process_free_envs_8": Setup(meaning=FREE_MEANING, manager="process", num_envs=8, trainer=FREE),
    "thread_free": Setup(meaning=FREE_MEANING, trainer=FREE_THREADS),
    "thread_free_actors_2": Setup(meaning=FREE_MEANING, actors=2, trainer=FREE_THREADS),
}
ROWS = [BOTH, *RUNS]


def repetition(names: list[str], updates: int, seed: int) -> dict[str, Reading]:
    """Measures baselines and runs alternately; each run gets the mean of its two baselines."""
    floors = Floors(seed)
    readings: dict[str, Reading] = {}
    before: Reading = {}
    for name in names:
        actor = "free" in name or name == BOTH
        if not before or (actor and "bare_actor" not in before):
            before = floors.measure(actor=actor)
        say(f"  {name}")
        with Others() as others:
            run = floors.both(updates) if name == BOTH else _run(name, updates, seed)
            after = floors.measure(actor=actor)
        readings[name] = {**run, **mean(before, after), "other_cores": others.cores}
        before = after
    return readings


def _run(name: str, updates: int, seed: int) -> Reading:
    setup = RUNS[name]
    slow = "record_interval" in setup.trainer
    span = Span(settled=20 if slow else SETTLED, updates=updates, seconds=4.0 if slow else None)
    return full_run(setup, span, seed).reading()


def line(name: str, readings: list[Reading]) -> dict[str, Any]:
    """Returns one row of the table."""
    content: dict[str, Any] = {}
    if name in RUNS:
        setup = RUNS[name]
        content = {"meaning": setup.meaning, "actors": setup.actors, "num_envs": setup.num_envs}
    rates, cpu_us = column(readings, "updates_per_s"), column(readings, "learner_us")
    for floor in FLOORS:
        content[f"to_{floor}"] = ratios(rates, column(readings, floor))
        content[f"cpu_to_{floor}"] = ratios(column(readings, f"{floor}_us"), cpu_us)
    if "bare_actor" in readings[0]:
        samples = column(readings, "samples_per_s")
        content["samples_to_bare_actor"] = ratios(samples, column(readings, "bare_actor"))
        actors_us = column(readings, "actors_us")
        content["cpu_samples_to_bare_actor"] = ratios(column(readings, "bare_actor_us"), actors_us)
    return content | summary(readings)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--updates", type=int, default=3_000, help="timed updates per run (default: 3000)"
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    arguments = parser.parse_args()
    names = []
    for name in arguments.rows:
        if name in RUNS and missing(RUNS[name]):
            say(f"skipped: {name} (unknown actor_manager={RUNS[name].manager})")
        else:
            names.append(name)
    readings = []
    for seed in range(arguments.repetitions):
        say(f"learner, repetition {seed + 1} of {arguments.repetitions}")
        answer = call(
            "benchmarks.learner:repetition", names=names, updates=arguments.updates, seed=seed
        )
        readings.append(answer)
    for name in names:
        emit("learner", name, line(name, [rows[name] for rows in readings]))


if __name__ == "__main__":
    main()
