"""Environments that sleep in each step, each in its own process, in lockstep with the learner.

    python -m benchmarks.lockstep [--repetitions 3] [--seconds 3] [--actors 1 2 4 8]

Full runs of `border-train trainer=sync actor_manager=process` with one environment per actor, and
Stable-Baselines3 with as many environments in its `SubprocVecEnv`, in turns. `ppo`: rollouts of 32
steps of each environment, 4 epochs, minibatches of 32. `dqn`: one update with 64 transitions after
each step of all environments. Networks of [64, 64]; no evaluations, no checkpoints. `share` is the
rate of env steps divided by `actors / sleep`, with the actual length of a sleep, measured in the
same run. Each measurement runs in its own process.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import SupportsFloat

from benchmarks.isolated import call
from benchmarks.machine import installed
from benchmarks.table import (
    Reading,
    Readings,
    column,
    emit,
    make_parser,
    ratios,
    say,
    summary,
    take_turns,
)
from border_cli import Callback, compose, train
from border_cli.core.output import RecordStep

SLEEPS_MS = (1, 5, 20)
ACTORS = (1, 2, 4, 8)
WARM_UP = 100  # env steps
OURS, SB3, SLEEP = "ours", "sb3", "sleep"
OFF = ("eval_interval", "record_interval", "save_interval")
SETTINGS = {
    "ppo": ["agent.batch_size=32", "replay_buffer.n_steps=32", "replay_buffer.n_epochs=4"],
    "dqn": ["agent.batch_size=64", f"trainer.warmup_period={WARM_UP}", "trainer=sync"],
}


class Timer(Callback):
    """Times a run from its first update, and stops it after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first: tuple[int, float] | None = None
        self.env_steps_per_s = 0.0
        self._env_steps = 0

    def on_update(self, moment: RecordStep, metrics: Mapping[str, SupportsFloat]) -> None:
        del metrics
        now_s = time.perf_counter()
        if self._first is None:
            self._first = moment.env_steps, now_s
        elif moment.env_steps > self._env_steps:  # the first update with these samples
            first, began_s = self._first
            self.env_steps_per_s = (moment.env_steps - first) / (now_s - began_s)
            if now_s - began_s >= self._seconds:
                self.stop("measured")
        self._env_steps = moment.env_steps


def ours(seed: int, algorithm: str, envs: int, step_s: float, seconds: float) -> Reading:
    """Measures one of our runs."""
    timer = Timer(seconds)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        config = compose(
            f"agent={algorithm}", "env=gym", "env.id=benchmarks.sleeping_env:Sleeping-v0",
            f"env.kwargs={{step_s: {step_s}}}", "env.num_envs=1", "actor_manager=process",
            f"actor_manager.num_actors={envs}", f"seed={seed}", "agent.hidden=[64, 64]",
            "trainer.stop_at_score=null", "trainer.max_opt_steps=10000000",
            f"run_dir={Path(folder) / 'run'}", *SETTINGS[algorithm],
            *(f"trainer.{name}=0" for name in OFF),
            *([f"trainer.samples_per_opt_step={envs}"] if algorithm == "dqn" else []),
        )  # fmt: skip
        train(config, recorders=[], callbacks=[timer])
        os.chdir("/")
    return {"env_steps_per_s": timer.env_steps_per_s}


def _measure(target: str, seed: int, **arguments: object) -> Reading:
    reading: Reading = call(target, seed=seed, **arguments)
    return reading


def _sleep(step_s: float, seed: int) -> Reading:
    del seed
    reading: Reading = call("benchmarks.sleeping_env:measure", steps=200, step_s=step_s)
    return reading


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="timed seconds (default: 3)")
    parser.add_argument("--actors", type=int, nargs="+", default=ACTORS, help="numbers of actors")
    parser.add_argument("--sleeps-ms", type=int, nargs="+", default=SLEEPS_MS)
    parser.add_argument("--agents", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    arguments = parser.parse_args()
    targets = {OURS: "benchmarks.lockstep:ours"}
    if installed("stable-baselines3"):
        targets[SB3] = "benchmarks.stable_baselines:lockstep"
    else:
        say('skipped: sb3 (needs pip install "border-cli[bench]")')
    contenders: dict[str, Callable[[int], Reading]] = {}
    rows: dict[str, tuple[int, int]] = {}  # name -> ms, actors
    for sleep_ms in arguments.sleeps_ms:
        contenders[f"{SLEEP} {sleep_ms}"] = partial(_sleep, sleep_ms / 1e3)
        for algorithm in arguments.agents:
            for envs in arguments.actors:
                for name, target in targets.items():
                    row = f"{algorithm} {sleep_ms} ms, {envs} actors, {name}"
                    rows[row] = sleep_ms, envs
                    contenders[row] = partial(
                        _measure, target, algorithm=algorithm, envs=envs,
                        step_s=sleep_ms / 1e3, seconds=arguments.seconds,
                    )  # fmt: skip
    readings: Readings = take_turns(contenders, arguments.repetitions)
    for row, (sleep_ms, envs) in rows.items():
        rates = column(readings[row], "env_steps_per_s")
        sleeps = column(readings[f"{SLEEP} {sleep_ms}"], "sleep_s")
        content = {"share": ratios(rates, [envs / sleep_s for sleep_s in sleeps])}
        emit("lockstep", row, content | summary(readings[row]))


if __name__ == "__main__":
    main()
