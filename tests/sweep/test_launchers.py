"""Third-party launchers and sweepers: workers get the setup of the command, and the sweep table
is built from the run directories."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.case_sampling import thinned, weekly
from tests.support.commands import QUICK, SLOW, Command, facts_of, sweep_rows

SWEEP = (
    *("-m", *QUICK, "imports=[unruly]", "env.id=NeedsFile-v0", "run_dir=S"),
    *("trainer.max_opt_steps=120", "actor_manager=serial", "actor_manager.max_restarts=0"),
    "env.kwargs.file=a,b",
)

pytestmark = pytest.mark.slow


def _needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")


JOBLIB = pytest.param("joblib", marks=_needs("joblib"))
SUBMITIT = pytest.param("submitit_local", marks=_needs("submitit"))


@pytest.mark.parametrize("launcher", thinned([JOBLIB, SUBMITIT], 2))
def test_other_launchers_tell_the_truth_and_complete_what_failed(
    tmp_path: Path, launcher: str
) -> None:
    (tmp_path / "b").touch()
    with Command(tmp_path, *SWEEP, f"hydra/launcher={launcher}") as command:
        status, said = command.ended()
    assert status == 1, said
    assert [row["status"] for row in sweep_rows(tmp_path / "S")] == ["done", "failed"]
    assert "b is in the way" in sweep_rows(tmp_path / "S")[1]["reason"]
    assert "1 of 2 jobs done\n" in said
    first = (tmp_path / "S/env.kwargs.file-a/run.json").read_bytes()
    (tmp_path / "b").unlink()
    with Command(tmp_path, *SWEEP, f"hydra/launcher={launcher}", "resume=auto") as command:
        status, said = command.ended()
    assert status == 0, said
    assert [row["status"] for row in sweep_rows(tmp_path / "S")] == ["done", "done"]
    assert (tmp_path / "S/env.kwargs.file-a/run.json").read_bytes() == first


@weekly
@pytest.mark.parametrize("launcher", [JOBLIB])
def test_ctrl_c_saves_the_jobs_of_workers(tmp_path: Path, launcher: str) -> None:
    endless = ("trainer.max_opt_steps=100000000", "trainer.stop_at_score=null")
    typed = ("-m", *QUICK, *SLOW, "run_dir=S", *endless, "trainer.save_interval=100")
    two = ("seed=0,1,2", f"hydra/launcher={launcher}", "hydra.launcher.n_jobs=2")
    first = tmp_path / "S/seed-0/checkpoints/latest"
    with Command(tmp_path, *typed, *two) as command:
        command.until(first.exists)
        command.send(signal.SIGINT)
        status, said = command.ended()
    assert status == 130, said
    statuses = [row["status"] for row in sweep_rows(tmp_path / "S")]
    assert statuses[0] == "interrupted", said
    assert statuses[2] == "not started", said


@pytest.mark.parametrize("launcher", [SUBMITIT])
def test_a_requeued_job_goes_on_from_its_own_directory(tmp_path: Path, launcher: str) -> None:
    limits = ("trainer.max_opt_steps=3000", "trainer.stop_at_score=null")
    typed = ("-m", *QUICK, "env=cartpole", "run_dir=S", *limits, "seed=0,1")
    more = (f"hydra/launcher={launcher}", "trainer.save_interval=100")
    job = tmp_path / "S/seed-0"
    with Command(tmp_path, *typed, *more) as command:
        command.until((job / "checkpoints/latest").exists)
        os.kill(int(facts_of(job)["pid"]), signal.SIGUSR2)  # the signal that submitit sends
        status, said = command.ended()
    assert status == 0, said
    facts = facts_of(job)
    assert facts["status"] == "done"
    assert [attempt["from_opt_steps"] > 0 for attempt in facts["attempts"]] == [False, True]


@_needs("hydra_plugins.hydra_optuna_sweeper")
@pytest.mark.parametrize("skips", thinned([True, False], 2))
def test_a_study_with_failing_and_refused_jobs_ends_as_planned(tmp_path: Path, skips: bool) -> None:
    (tmp_path / "b").touch()
    typed = (
        *SWEEP[:-1],
        *("env.kwargs.file=choice(a,b)", "agent.gamma=interval(0.8,1.2)"),
        *("hydra/sweeper=optuna", "hydra.sweeper.n_trials=6", "hydra.sweeper.n_jobs=2"),
        *("hydra.sweeper.direction=maximize", "hydra/sweeper/sampler=random"),
        *("hydra.sweeper.sampler.seed=1", f"sweep.skip_invalid={skips}"),
    )
    with Command(tmp_path, *typed) as command:
        status, said = command.ended()
    rows = sweep_rows(tmp_path / "S")
    assert len(rows) == 6, said
    refused = "skipped" if skips else "failed"
    for row in rows:
        fails = row["env.kwargs.file"] == "b"
        ended = "failed" if fails else "done"
        assert row["status"] == (ended if float(row["agent.gamma"]) <= 1 else refused)
    assert {row["status"] for row in rows} == {"done", "failed", refused}
    assert status == 1
    assert (tmp_path / "S/optimization_results.yaml").is_file()
