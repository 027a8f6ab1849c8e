"""Evaluations on the nodes of a cluster: bit-identical to those on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from border_cli.errors import RunFailed
from border_cli.evaluator.runner import Confirmation
from tests.support.case_sampling import weekly
from tests.support.clusters import RayCluster, running_cluster
from tests.support.spread_evaluations import Evaluated, evaluated

pytestmark = [pytest.mark.ray, pytest.mark.long, weekly]

ROUNDS = Confirmation(-1e9, 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch, running_cluster() as cluster:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        for name in ("left", "right"):
            cluster.add(name, cpus=1)
        yield cluster


def evaluated_on(cluster: RayCluster, file: Path) -> Evaluated:
    return evaluated(
        "sac",
        "gym",
        "imports=[deadly]",
        "env.id=DiesOnce-v0",
        f"env.kwargs.file={file}",
        "evaluator.background=true",
        "evaluator.where=ray",
        f"evaluator.address={cluster.address}",
    )


def test_a_dead_worker_changes_no_episode_and_an_exception_fails_the_evaluation(
    cluster: RayCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = evaluated_on(cluster, tmp_path / "deadly")
    expected = run.in_one_place(ROUNDS)
    assert len(set(expected.returns)) == 10
    runner = run.runner(ROUNDS)
    runner.open()
    try:
        for deadly in (True, False):
            if deadly:
                (tmp_path / "deadly").touch()
            runner.submit(run.snapshot)
            assert runner.wait() == expected
            assert not (tmp_path / "deadly").exists()
        assert (
            caplog.text.count("a worker on the cluster is lost: its worker process has died") == 1
        )
        (tmp_path / "deadly").write_text("raise")
        runner.submit(run.snapshot)
        with pytest.raises(RunFailed, match=r"evaluation failed: .*the pendulum is stuck"):
            runner.wait()
    finally:
        runner.close()
