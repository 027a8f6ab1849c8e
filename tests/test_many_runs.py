"""Many runs in one process leave nothing behind, and a run survives many killed actors."""

from __future__ import annotations

import gc
import os
import signal
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from border_cli import Callback, compose, train
from border_cli.core.output import RecordStep
from tests.support import leftovers
from tests.support.case_sampling import ALL, thinned
from tests.support.commands import QUICK

RUNS = 20 if ALL else 8
KILLS, UPDATES = (200, 30_000) if ALL else (20, 12_000)
KILLS_IN_LOCKSTEP = 50 if ALL else 12

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.long
@pytest.mark.slow
def test_runs_leave_threads_files_and_segments_as_they_were() -> None:
    def run(number: int) -> tuple[Any, ...]:
        overrides = (*QUICK, "env=cartpole", "actor_manager=process", "recorder=[jsonl]")
        train(compose(*overrides, f"run_dir=run-{number}"))
        gc.collect()
        return (
            {thread.name for thread in threading.enumerate()},
            sorted(leftovers.open_files().values()),
            leftovers.segments(),
            leftovers.processes(),
            leftovers.python_s_own(),
        )

    first = run(0)
    for number in range(1, RUNS):
        last = run(number)
    assert last == first
    assert last[2] == 0
    assert last[3] == set()


class Killer(Callback):
    """A thread that kills child processes at random moments after the first update.

    Before it, Python's resource tracker may have started without being known as such. After one to
    three kills it waits for the next update: where no actor can deliver anything, each pause before
    a restart is twice as long as the last one.

    As a callback it ends the run after `most` kills and `updates` updates, on fast machines too.
    """

    def __init__(
        self, seed: int, most: int, updates: int = 0, longest_pause_s: float = 0.2
    ) -> None:
        self.killed = 0
        self._most, self._updates, self._longest_pause_s = most, updates, longest_pause_s
        self._rng = np.random.default_rng(seed)
        self._updated, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer")

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def on_update(self, moment: RecordStep, _metrics: object) -> None:
        self._updated.set()
        if self.killed == self._most and moment.opt_steps >= self._updates:
            self.stop("enough kills")

    @property
    def _pause_s(self) -> float:
        return float(self._rng.uniform(0, self._longest_pause_s))

    def _run(self) -> None:
        killed: set[int] = set()
        at_once = 0  # kills until it waits for an update
        while self.killed < self._most and not self._ended.wait(self._pause_s):
            if at_once == 0:
                if not self._updated.is_set():
                    continue
                at_once = int(self._rng.integers(1, 4))
            alive = {pid for pid in leftovers.processes() if leftovers.is_alive(pid)}
            targets = sorted(alive - killed)  # under load, a killed process remains for a while
            if not targets:
                continue
            pid = targets[self._rng.integers(len(targets))]
            with suppress(ProcessLookupError):  # the process has ended
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
                self.killed += 1
                at_once -= 1
                self._updated.clear()


@pytest.mark.long
@pytest.mark.stress
def test_kills_of_actors_lose_no_count_no_memory_and_not_the_task() -> None:
    gc.collect()  # garbage of earlier tests
    mapped, named = leftovers.segments(), leftovers.named_segments()
    config = compose(
        *("agent=dqn", "env=cartpole", "actor_manager=process", "recorder=[jsonl]"),
        *("actor_manager.num_actors=4", "actor_manager.max_restarts=1000"),
        *("trainer.stop_at_score=null", "trainer.max_opt_steps=1_000_000", "run_dir=chaos"),
        "trainer.stall_timeout_s=1000",  # a busy machine starts processes slowly
    )
    with Killer(0, KILLS, UPDATES) as killer:
        result = train(config, callbacks=[killer])
    assert killer.killed == KILLS
    trainer, actors = result.trainer_stats, result.actor_stats
    assert UPDATES <= trainer.opt_steps < 1_000_000
    assert trainer.samples_total == sum(actor.samples for actor in actors)
    restarts = sum(actor.restarts for actor in actors)
    assert restarts <= KILLS  # a process about to be replaced may be killed twice
    assert restarts >= 0.95 * KILLS
    # Every incarnation may end with two env steps in its 3-step window. A kill between the two
    # memory writes that count a step leaves the counters one apart.
    in_windows = sum(actor.env_steps - actor.samples - actor.lost_samples for actor in actors)
    assert -2 <= in_windows <= 2 * (restarts + len(actors)) + 2
    assert result.best_score >= 475
    gc.collect()
    assert leftovers.segments() == mapped
    assert leftovers.named_segments() == named


@pytest.mark.long
@pytest.mark.stress
@pytest.mark.parametrize("agent", thinned(["ppo", "dqn"], 2))
def test_kills_of_actors_in_lockstep_lose_nothing(agent: str) -> None:
    gc.collect()  # garbage of earlier tests
    mapped, named = leftovers.segments(), leftovers.named_segments()
    config = compose(
        *(f"agent={agent}", "env=cartpole", "trainer=sync", "actor_manager=process"),
        *("actor_manager.num_actors=4", "actor_manager.max_restarts=1000", "recorder=[jsonl]"),
        *("trainer.stop_at_score=null", "trainer.max_opt_steps=1_000_000", "run_dir=chaos"),
        "trainer.stall_timeout_s=1000",  # a busy machine starts processes slowly
        *(("env.num_envs=2",) if agent == "ppo" else ()),
    )
    # The run pauses before each restart.
    with Killer(0, KILLS_IN_LOCKSTEP, longest_pause_s=0.6) as killer:
        result = train(config, callbacks=[killer])
    assert killer.killed == KILLS_IN_LOCKSTEP
    trainer, actors = result.trainer_stats, result.actor_stats
    assert trainer.samples_total == sum(actor.samples for actor in actors)
    restarts = sum(actor.restarts for actor in actors)
    assert 0.9 * KILLS_IN_LOCKSTEP <= restarts <= KILLS_IN_LOCKSTEP  # some are killed twice
    assert sum(actor.lost_samples for actor in actors) == 0
    # Every incarnation of dqn may end with two env steps in its 3-step window.
    in_windows = sum(actor.env_steps - actor.samples for actor in actors)
    assert 0 <= in_windows <= (0 if agent == "ppo" else 2 * (restarts + len(actors)))
    gc.collect()
    assert leftovers.processes() == set()
    assert leftovers.segments() == mapped
    assert leftovers.named_segments() == named
