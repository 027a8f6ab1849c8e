"""Runs on a Ray cluster, for tests that kill its nodes and processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.support.clusters import ClusterNode, RayCluster
from tests.support.commands import SLOW, Command, facts_of, rows_of
from tests.support.leftovers import below

SETTINGS = (
    "agent=dqn",
    *SLOW,
    "agent.hidden=[8]",
    "agent.batch_size=8",
    "actor_manager=ray",
    "step_processor.n_steps=1",  # one sample per env step, also for lost samples
    "trainer.samples_per_opt_step=2",
    "trainer.max_opt_steps=10_000_000",
    "trainer.stop_at_score=null",
    "trainer.eval_interval=10_000_000",
    "trainer.record_interval=50",
    "trainer.save_every_s=0.5",
    "checkpoint.replay_buffer=false",
)


class ClusterRun(Command):
    """A `border-train` process on a cluster, killed at the end of the `with` block."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self.run_dir = folder / "run"
        super().__init__(folder, *argv)

    @classmethod
    def new(cls, folder: Path, cluster: RayCluster, *more: str) -> ClusterRun:
        """Starts a run in the directory `run`."""
        address = f"actor_manager.address={cluster.address}"
        return cls(folder, *SETTINGS, address, "run_dir=run", *more)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl so far."""
        return rows_of(self.run_dir) if (self.run_dir / "metrics.jsonl").exists() else []

    @property
    def restarts(self) -> float:
        """Restarts of all actors, from the newest row that reports them."""
        counts = [row["actor/restarts"] for row in self.rows if "actor/restarts" in row]
        return float(counts[-1]) if counts else 0.0

    @property
    def env_steps(self) -> int:
        """Env steps in the newest row."""
        return int(self.rows[-1]["env_steps"]) if self.rows else 0

    @property
    def acting(self) -> int:
        """Number of acting actors, from the newest row that reports it."""
        counts = [row["async/actors"] for row in self.rows if "async/actors" in row]
        return int(counts[-1]) if counts else 0

    def until_sampling(self, actors: int) -> None:
        """Waits until `actors` actors are acting and new samples have arrived."""
        before = self.env_steps
        self.until(lambda: self.acting == actors and self.env_steps > before)


def actors_on(node: ClusterNode) -> list[int]:
    """Returns the pids of all actors on a node, whichever run they belong to."""
    return [pid for pid in below(node.raylet) if _command(pid).startswith(b"ray::RemoteActor")]


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    """Kills a process, as the out-of-memory killer does."""
    os.kill(pid, signum)


def refuse_wrong_totals(run_dir: Path) -> dict[str, Any]:
    """Asserts that the counters of a run add up; returns the content of `run.json`."""
    facts = facts_of(run_dir)
    actors = facts["actors"]
    lost = sum(actor["lost_samples"] for actor in actors)  # known to be collected, not received
    assert sum(actor["samples"] for actor in actors) == facts["samples_total"]
    env_steps = sum(actor["env_steps"] for actor in actors)
    assert env_steps == facts["env_steps"] + lost, (env_steps, facts["env_steps"], lost, actors)
    return facts


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
