"""`hydra/launcher=ray`: a sweep whose jobs run on the nodes of a cluster."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.case_sampling import weekly
from tests.support.clusters import RayCluster, running_cluster
from tests.support.commands import QUICK, SLOW, Command, facts_of

pytestmark = [pytest.mark.ray, pytest.mark.long, weekly]

ENDLESS = (
    *("-m", *QUICK, *SLOW, "run_dir=S", "seed=0,1,2", "hydra/launcher=ray"),
    *("trainer.stop_at_score=null", "trainer.save_interval=100", "checkpoint.replay_buffer=false"),
)
LONG, SHORT = "trainer.max_opt_steps=100000000", "trainer.max_opt_steps=200"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head node without CPUs, and two nodes with room for one job each."""
    with pytest.MonkeyPatch.context() as patch, running_cluster() as cluster:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        cluster.add("head", cpus=0)
        for name in ("left", "right"):
            cluster.add(name, cpus=1)
        yield cluster


def test_a_killed_job_and_a_lost_node_take_no_other_job_and_the_command_completes_them(
    cluster: RayCluster, tmp_path: Path
) -> None:
    jobs = [tmp_path / "S" / f"seed-{seed}" for seed in range(3)]
    address = f"hydra.launcher.address={cluster.address}"

    def jobs_with_a_checkpoint() -> list[Path]:
        return [job for job in jobs if (job / "checkpoints/latest").exists()]

    with Command(tmp_path, *ENDLESS, LONG, address) as command:
        command.until(lambda: len(jobs_with_a_checkpoint()) == 2)  # the third waits for a node
        os.kill(int(facts_of(jobs_with_a_checkpoint()[0])["pid"]), signal.SIGKILL)
        command.until(lambda: len(jobs_with_a_checkpoint()) == 3)
        cluster.remove("left")
        command.until(lambda: "2 of 3 ended" in command.said_so_far())
        command.send(signal.SIGINT)
        status, output = command.ended()
    assert status == 130, output
    ends = sorted(row["status"] for row in _rows(tmp_path))
    assert ends == ["interrupted", "killed", "killed"], output
    assert "0 of 3 jobs done" in output
    cluster.add("left", cpus=1)
    with Command(tmp_path, *ENDLESS, SHORT, address, "resume=auto") as command:
        status, output = command.ended()
    assert status == 0, output
    assert [row["status"] for row in _rows(tmp_path)] == ["done"] * 3
    assert sorted(len(facts_of(job)["attempts"]) for job in jobs) == [2, 2, 2]


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "S" / "sweep.csv").open() as file:
        return list(csv.DictReader(file))
