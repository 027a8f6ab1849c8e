"""Kills actors of a run on a Ray cluster, then stops a raylet for longer than the deadline.

    python -m benchmarks.cluster_losses [--kills 50] [--seed 0]

Two nodes of two CPUs and a spare one on this machine (Ray's `cluster_utils.Cluster`), four actors.
`again`: seconds from a kill until all four actors act again. `gap`: longest time between two rows
of metrics; rows come with updates, which need samples. `stopped`: seconds until all four actors act
again while the raylet of the second node, which does not run the learner, is stopped. Finally, the
counts in `run.json` must add up.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.table import emit, make_parser, say, spread
from tests.support.cluster_runs import ClusterRun, actors_on, kill, refuse_wrong_totals
from tests.support.clusters import running_cluster

ACTORS = 4
STALL_S = 10.0  # trainer.stall_timeout_s


def run(kills: int, seed: int) -> dict[str, Any]:
    """Runs the experiment and returns its results."""
    rng = random.Random(seed)
    again: list[float] = []
    with tempfile.TemporaryDirectory() as folder, running_cluster() as cluster:
        nodes = [cluster.add(name, cpus=ACTORS / 2) for name in ("head", "second")]
        spare = cluster.add("spare", cpus=ACTORS / 2)
        more = (f"actor_manager.num_actors={ACTORS}", f"trainer.stall_timeout_s={STALL_S:g}")
        with ClusterRun.new(Path(folder), cluster, *more) as job:
            job.until_sampling(ACTORS)
            for number in range(kills):
                time.sleep(rng.uniform(0.0, 1.0))
                pids = [pid for node in (*nodes, spare) for pid in actors_on(node)]
                restarts, began_s = job.restarts, time.monotonic()
                kill(rng.choice(pids))
                job.until(lambda previous=restarts: job.restarts > previous)  # type: ignore[misc]
                job.until_sampling(ACTORS)
                again.append(time.monotonic() - began_s)
                say(f"kill {number + 1}: all actors act again after {again[-1]:.1f} s")
            stopped_s = _stop(job, nodes[1].raylet)
            job.send(signal.SIGINT)
            sent_s = time.monotonic()
            status, output = job.ended()
            ended_s = time.monotonic() - sent_s
        if status != 128 + signal.SIGINT:
            raise RuntimeError(f"the run ended with {status}:\n{output}")
        facts = refuse_wrong_totals(job.run_dir)
        gaps = [after["time_s"] - before["time_s"] for before, after in pairwise(job.rows)]
    return {
        "kills": kills, "again": spread(again), "gap": max(gaps), "stopped": stopped_s,
        "ctrl_c": ended_s, "restarts": sum(actor["restarts"] for actor in facts["actors"]),
        "lost": sum(actor["lost_samples"] for actor in facts["actors"]),
        "env_steps": facts["env_steps"],
    }  # fmt: skip


def _stop(job: ClusterRun, raylet: int) -> float:
    """Stops a raylet for longer than the deadline; returns the seconds until all actors act."""
    kill(raylet, signal.SIGSTOP)
    began_s = time.monotonic()
    try:
        time.sleep(STALL_S + 1)
        job.until_sampling(ACTORS)
        return time.monotonic() - began_s
    finally:
        kill(raylet, signal.SIGCONT)


def main() -> None:
    parser = make_parser(__doc__, repetitions=1)
    parser.add_argument("--kills", type=int, default=50, help="number of kills (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times (default: 0)")
    arguments = parser.parse_args()
    emit("cluster_losses", "cartpole", run(arguments.kills, arguments.seed))


if __name__ == "__main__":
    main()
