"""A run on a cluster that loses actors, nodes, its learner and finally the head node."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster_runs import ClusterRun, actors_on, kill, refuse_wrong_totals
from tests.support.clusters import RayCluster, running_cluster
from tests.support.commands import Command
from tests.support.leftovers import wait_until_gone

pytestmark = [pytest.mark.ray, pytest.mark.long]

GONE_S = 10.0
PROCESS = ("actor_manager=process", "actor_manager.num_actors=4")  # as many as AUTO allows
AUTO = ("actor_manager.num_actors=auto", "actor_manager.max_actors=4")


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with running_cluster() as cluster:
        yield cluster


def test_a_run_goes_on_through_every_loss_and_ends_with_the_head_node(
    cluster: RayCluster, tmp_path: Path
) -> None:
    head, second = cluster.add("head", cpus=1), cluster.add("second", cpus=2)
    with ClusterRun.new(tmp_path, cluster, *AUTO) as run:
        run.until_sampling(3)
        kill(actors_on(second)[0])
        run.until(lambda: run.restarts >= 1)
        run.until_sampling(3)
        cluster.remove("second")
        run.until_sampling(1)
        third = cluster.add("third", cpus=2)
        run.until_sampling(3)
        actors = {*actors_on(head), *actors_on(third)}
        assert len(actors) == 3
        run.send(signal.SIGKILL)
        run.ended()
        assert not wait_until_gone(actors, GONE_S)

    limit = f"trainer.max_opt_steps={run.rows[-1]['opt_steps'] + 100}"
    with Command(tmp_path, "resume=run", *PROCESS, limit) as resumed:
        status, output = resumed.ended()
    assert status == 0, output
    refuse_wrong_totals(run.run_dir)

    address = f"actor_manager.address={cluster.address}"
    unlimited = "trainer.max_opt_steps=10_000_000"
    with ClusterRun(
        tmp_path, "resume=run", "actor_manager=ray", *AUTO, address, unlimited
    ) as again:
        again.until_sampling(3)
        cluster.remove("head")
        status, output = again.ended()
    assert status == 1
    assert "the head node of the Ray cluster is gone" in output
    assert "border-train resume=run" in output
    assert refuse_wrong_totals(run.run_dir)["status"] == "failed"
