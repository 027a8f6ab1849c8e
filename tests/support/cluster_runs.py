"""Whole runs on a cluster, as they are while nodes and processes are taken from them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.support.clusters import ClusterNode, RayCluster
from tests.support.commands import Command, facts_of, rows_of
from tests.support.leftovers import below

SETTINGS = (
    "agent=dqn",
    "env=cartpole",
    "agent.hidden=[8]",
    "agent.batch_size=8",
    "actor_manager=ray",
    "step_processor.n_steps=1",  # so that each env step is a sample, in what was lost as well
    "trainer.samples_per_opt_step=2",
    "trainer.max_opt_steps=10_000_000",
    "trainer.stop_at_score=null",
    "trainer.eval_interval=10_000_000",
    "trainer.record_interval=50",
    "trainer.save_every_s=0.5",
    "checkpoint.replay_buffer=false",
)


class ClusterRun(Command):
    """A run of `border-train` on a cluster; killed when its block ends."""

    def __init__(self, folder: Path, *argv: str) -> None:
        self.run_dir = folder / "run"
        super().__init__(folder, *argv)

    @classmethod
    def new(cls, folder: Path, cluster: RayCluster, *more: str) -> ClusterRun:
        """A run in the directory `run`."""
        address = f"actor_manager.address={cluster.address}"
        return cls(folder, *SETTINGS, address, "run_dir=run", *more)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of its metrics so far."""
        return rows_of(self.run_dir) if (self.run_dir / "metrics.jsonl").exists() else []

    @property
    def restarts(self) -> float:
        """Of all actors, by its newest row."""
        known = [row["actor/restarts"] for row in self.rows if "actor/restarts" in row]
        return float(known[-1]) if known else 0.0

    @property
    def env_steps(self) -> int:
        """Of its newest row."""
        return int(self.rows[-1]["env_steps"]) if self.rows else 0

    @property
    def acting(self) -> int:
        """Actors that act, by its newest row."""
        known = [row["async/actors"] for row in self.rows if "async/actors" in row]
        return int(known[-1]) if known else 0

    def until_sampling(self, actors: int) -> None:
        """Returns once so many actors act and samples arrive from here on."""
        before = self.env_steps
        self.until(lambda: self.acting == actors and self.env_steps > before)


def actors_on(node: ClusterNode) -> list[int]:
    """The processes of actors on a node, of whatever run."""
    return [pid for pid in below(node.raylet) if _command(pid).startswith(b"ray::RemoteActor")]


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    """As the system does where memory is short."""
    os.kill(pid, signum)


def refuse_wrong_totals(run_dir: Path) -> dict[str, Any]:
    """Fails where the counts of a run do not add up; returns `run.json`."""
    facts = facts_of(run_dir)
    actors = facts["actors"]
    lost = sum(each["lost_samples"] for each in actors)  # made, as far as known; never received
    assert sum(each["samples"] for each in actors) == facts["samples_total"]
    made = sum(each["env_steps"] for each in actors)
    assert made == facts["env_steps"] + lost, (made, facts["env_steps"], lost, actors)
    return facts


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
