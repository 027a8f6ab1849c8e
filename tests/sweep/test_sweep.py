"""Sweeps with every launcher: a failing job affects no other, and one table lists all jobs."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from threading import Event

import pytest

from border_cli.config.compose import Composer
from border_cli.errors import RunFailed
from border_cli.run.sweep_folder import job_rows, read_sweep
from border_cli.sweep.listing import Sweep
from border_cli.sweep.plan import plan_sweep
from border_cli.system.files import write_json
from tests.support.case_sampling import sampled, thinned
from tests.support.commands import (
    QUICK,
    SLOW,
    Command,
    facts_of,
    isolated,
    open_files_below,
    process_state,
    repeatable_rows,
    sweep_rows,
    train_status,
)

Capture = pytest.CaptureFixture[str]

BASIC, OURS = "hydra/launcher=basic", "hydra/launcher=processes"
SWEEP = (
    "-m",
    *QUICK,
    "imports=[unruly]",
    "env.id=NeedsFile-v0",
    "run_dir=S",
    "trainer.max_opt_steps=120",
    "actor_manager=serial",
    "actor_manager.max_restarts=0",
    "env.kwargs.file=a,b,c",
)
PAIRS = (
    *("-m", *QUICK, "run_dir=S", "actor_manager=serial", "sweep.skip_invalid=true"),
    "env=cartpole,pendulum",
)
ENDLESS = (
    *("-m", *QUICK, *SLOW, "run_dir=S", "trainer.max_opt_steps=100000000"),
    *("trainer.stop_at_score=null", "trainer.save_interval=100", "checkpoint.replay_buffer=false"),
)


def swept_with(folder: Path, launcher: str) -> tuple[Path, str]:
    (folder / "b").touch()
    with isolated(folder) as patch, (folder / "said").open("w") as out:
        patch.setattr("sys.stdout", out)
        assert train_status(*SWEEP, launcher) == 1
    return folder, (folder / "said").read_text()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory and the output of a sweep whose second job failed."""
    return swept_with(tmp_path_factory.mktemp("sweep"), BASIC)


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same sweep with one process per job."""
    return swept_with(tmp_path_factory.mktemp("sweep"), OURS)


def test_a_job_that_fails_leaves_the_others_alone(swept: tuple[Path, str]) -> None:
    folder, _ = swept
    rows = sweep_rows(folder / "S")
    assert [(row["env.kwargs.file"], row["status"], row["score"]) for row in rows] == [
        ("a", "done", "20.0"),  # reward 1 for each of 20 steps
        ("b", "failed", ""),
        ("c", "done", "20.0"),
    ]
    assert "RuntimeError: b is in the way" in rows[1]["reason"]
    folders = [Path(row["folder"]) for row in rows]
    assert [job_dir.name for job_dir in folders] == [f"env.kwargs.file-{name}" for name in "abc"]
    assert facts_of(folders[1])["exit_reason"] == rows[1]["reason"]
    logs = [(job_dir / "border-train.log").read_text() for job_dir in folders]
    assert ["b is in the way" in log for log in logs] == [False, True, False]


def test_the_table_of_a_sweep_shows_what_was_swept(swept: tuple[Path, str]) -> None:
    _, said = swept
    before, table = said.split(" job ")
    assert "error: actor" in before  # the failure was reported immediately
    assert "\njob 1 (env.kwargs.file=b), 2 of 3\n" in before
    heading, *lines = table.splitlines()
    assert heading.split() == ["env.kwargs.file", "status", "score", "reason"]
    assert lines[1].split()[:4] == ["0", "a", "done", "20.0"]
    assert "2 of 3 jobs done\n" in table
    assert table.endswith(f" env.kwargs.file=a,b,c {BASIC} resume=auto\n")
    assert " 'agent.hidden=[4]' " in table  # quoted for the shell


@pytest.mark.slow
def test_processes_leave_the_same_table_as_one_process(
    swept: tuple[Path, str], in_processes: tuple[Path, str]
) -> None:
    def compared(folder: Path) -> list[dict[str, str]]:
        own = ("seconds", "folder", "env_steps")
        return [
            {key: row[key] for key in row if key not in own} for row in sweep_rows(folder / "S")
        ]

    folder, said = in_processes
    assert compared(folder) == compared(swept[0])
    (failed,) = [line for line in said.splitlines() if "job 1 (env.kwargs.file=b): failed" in line]
    assert "b is in the way" in failed
    assert "b is in the way" in (folder / "S/env.kwargs.file-b/output.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", thinned([OURS, BASIC], 2))
def test_the_same_command_runs_only_what_failed(
    swept: tuple[Path, str], folder: Path, capsys: Capture, launcher: str
) -> None:
    shutil.copytree(swept[0] / "S", folder / "S", symlinks=True)
    jobs = [folder / "S" / f"env.kwargs.file-{name}" for name in "abc"]
    first = [(job / "run.json").read_bytes() for job in jobs]
    assert train_status(*SWEEP, launcher, "resume=auto") == 0
    assert "3 of 3 jobs done" in capsys.readouterr().out
    rows = sweep_rows(folder / "S")
    assert [(row["status"], row["score"]) for row in rows] == [("done", "20.0")] * 3
    again = [(job / "run.json").read_bytes() for job in jobs]
    assert [old == new for old, new in zip(first, again, strict=True)] == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", thinned([OURS, BASIC], 2))
def test_a_sweep_that_stops_on_errors_starts_no_further_job(folder: Path, launcher: str) -> None:
    (folder / "a").touch()
    one = ("hydra.launcher.jobs=1",) if launcher == OURS else ()
    assert train_status(*SWEEP, launcher, *one, "sweep.on_error=stop") == 1
    assert [row["status"] for row in sweep_rows(folder / "S")] == [
        "failed",
        "not started",
        "not started",
    ]
    assert not (folder / "S/sweep.stop").exists()


@pytest.mark.parametrize("launcher", sampled([BASIC, OURS], every=2))
def test_jobs_that_are_refused_are_left_out_where_that_is_asked_for_and_keep_their_numbers(
    folder: Path, capsys: Capture, launcher: str
) -> None:
    assert train_status(*PAIRS, "agent=dqn,nope,sac", launcher) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "next             border-plot S"
    said, table = printed.split("sweep directory")[0].split(" job ", 1)
    reason = (
        "agent=dqn needs a Discrete, MultiDiscrete or MultiBinary action space; env.id=Pendulum"
    )
    assert f"job 3 (env=pendulum agent=dqn) is skipped: {reason}" in said
    assert "job 0 (env=cartpole agent=dqn) is skipped" not in said
    assert "2 of 6 jobs done, 4 skipped\n" in table
    statuses = ["done", "skipped", "skipped", "skipped", "skipped", "done"]
    rows = sweep_rows(folder / "S")
    assert [row["status"] for row in rows] == statuses
    assert rows[3]["reason"].startswith(reason)
    assert rows[1]["reason"].startswith("unknown agent 'nope'")
    ended = (folder / "S/agent-dqn__env-cartpole/run.json").read_bytes()
    assert train_status(*PAIRS, "agent=sac,dqn,iqn", launcher, "resume=auto", "quiet=true") == 0
    more = sweep_rows(folder / "S")
    assert [(row["job"], row["env"], row["agent"], row["status"]) for row in more] == [
        *((row["job"], row["env"], row["agent"], row["status"]) for row in rows),
        ("6", "cartpole", "iqn", "done"),
        ("7", "pendulum", "iqn", "skipped"),
    ]
    assert (folder / "S/agent-dqn__env-cartpole/run.json").read_bytes() == ended
    assert "job 7 (env=pendulum agent=iqn) is skipped: " in capsys.readouterr().err


@pytest.mark.parametrize("agent", ["agent=dqn", "agent=nope"])
def test_a_sweep_whose_jobs_are_all_refused_is_refused(
    folder: Path, capsys: Capture, agent: str
) -> None:
    assert train_status(*PAIRS, "env=pendulum", agent, "seed=1,2") == 2
    assert capsys.readouterr().err.startswith("border-train: ")
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_quiet_sweep_prints_no_table_and_leaks_nothing_into_its_next_job(
    folder: Path, capfd: Capture
) -> None:
    argv = (*QUICK, "env=cartpole", "actor_manager=serial", "quiet=true")
    assert train_status(*argv, "seed=2", "run_dir=alone") == 0
    before = process_state()
    assert train_status("-m", *argv, "seed=1,2", "run_dir=S", BASIC) == 0
    assert process_state() == before
    assert len(open_files_below(folder)) <= 1  # the log of the last job
    assert repeatable_rows(folder / "S" / "seed-2") == repeatable_rows(folder / "alone")
    out, err = capfd.readouterr()
    folders = ["alone", "S/seed-1", "S/seed-2"]
    assert [line.rpartition(": ")[2] for line in out.splitlines()] == folders
    assert err == ""


def sweep_of(root: Path, seed: int) -> Sweep:
    """Plans a sweep with one job."""
    typed = ["env=cartpole", f"seed={seed}", f"run_dir={root}", "resume=auto", "quiet=true"]
    return Sweep(plan_sweep(Composer(), typed, ["border-train"]))


def test_sweeps_that_begin_in_one_moment_are_both_in_the_list_of_the_directory(
    tmp_path: Path,
) -> None:
    sweeps = [sweep_of(tmp_path, seed) for seed in (1, 2)]
    for sweep in sweeps:
        sweep.begin()
    plan = read_sweep(tmp_path)
    assert plan is not None
    assert [job.values["seed"] for job in plan.jobs] == ["1", "2"]


def test_a_sweep_whose_directory_was_deleted_meanwhile_has_failed(
    tmp_path: Path,
) -> None:
    root, job = tmp_path / "S", tmp_path / "S/env-cartpole__seed-0"
    sweep = sweep_of(root, 0)
    sweep.begin()
    job.mkdir()
    write_json(job / "run.json", {"status": "done"})
    assert sweep.finish() == 0
    shutil.rmtree(root)
    job.mkdir(parents=True)  # a run recreates its directory
    write_json(job / "run.json", {"status": "done"})
    with pytest.raises(RunFailed, match=r"sweep\.json was deleted or damaged"):
        sweep.finish()


@pytest.mark.slow
def test_two_sweeps_in_one_directory_train_each_job_once(tmp_path: Path) -> None:
    typed = ("-m", *QUICK, "env=cartpole", "run_dir=S", "resume=auto", OURS)
    one = ("hydra.launcher.jobs=1", "trainer.max_opt_steps=500")
    with (
        Command(tmp_path, *typed, *one, "seed=0,1,2") as up,
        Command(tmp_path, *typed, *one, "seed=2,1,0") as down,
    ):
        said = [command.ended()[1] for command in (up, down)]
    facts = [facts_of(tmp_path / "S" / f"seed-{seed}") for seed in range(3)]
    assert [(run["status"], len(run["attempts"])) for run in facts] == [("done", 1)] * 3, said
    assert not re.search("(?<!0 )failed", "".join(said))


@pytest.mark.slow
@pytest.mark.parametrize("how", thinned(["a signal", "killed"], 2))
def test_nothing_outlives_the_command_and_typed_again_it_completes_the_rest(
    tmp_path: Path, how: str
) -> None:
    jobs = [tmp_path / "S" / f"seed-{seed}" for seed in (0, 1)]
    with Command(tmp_path, *ENDLESS, "seed=0,1", OURS, "hydra.launcher.jobs=2") as command:
        command.until(lambda: all((job / "checkpoints/latest").exists() for job in jobs))
        command.send(signal.SIGKILL if how == "killed" else signal.SIGINT)
        status, said = command.ended()  # waits for all processes that hold its pipes
    assert status == (-signal.SIGKILL if how == "killed" else 130), said
    statuses = _statuses_once_ended(tmp_path / "S")
    assert statuses == {"killed" if how == "killed" else "interrupted"}, said
    assert how == "killed" or "0 of 2 jobs done" in said
    ended = ("trainer.max_opt_steps=200", "resume=auto", OURS)
    again = [override for override in ENDLESS if "max_opt_steps" not in override]
    with Command(tmp_path, *again, *ended, "seed=0,1") as command:
        status, said = command.ended()
    assert status == 0, said
    assert [row["status"] for row in sweep_rows(tmp_path / "S")] == ["done", "done"]
    assert [len(facts_of(job)["attempts"]) for job in jobs] == [2, 2]


@pytest.mark.slow
def test_a_process_that_is_killed_takes_its_own_job_alone(tmp_path: Path) -> None:
    typed = ("-m", *QUICK, "imports=[unruly]", "env.id=Leaves-v0,Calm-v0", "env.kwargs.at=30")
    with Command(tmp_path, *typed, OURS, "run_dir=S", "trainer.max_opt_steps=60") as command:
        status, said = command.ended()
    assert status == 1
    rows = sweep_rows(tmp_path / "S")
    assert [row["status"] for row in rows][1] == "done"
    assert rows[0]["status"] in ("killed", "failed"), said
    assert "1 of 2 jobs done" in said


def _statuses_once_ended(root: Path) -> set[str]:
    """Returns the statuses of the jobs after the kernel has ended their processes."""
    plan = read_sweep(root)
    assert plan is not None
    for _ in range(200):
        statuses = {row.status for row in job_rows(root, plan)}
        if "running" not in statuses:
            return statuses
        Event().wait(0.05)
    raise AssertionError(f"jobs still run: {statuses}")


def test_a_sweeper_gets_the_score_that_the_objective_names(tmp_path: Path) -> None:
    typed = ["env=cartpole", f"run_dir={tmp_path}", "objective=last"]
    sweeper = "hydra.sweeper._target_=another.Sweeper"
    sweep = Sweep(plan_sweep(Composer(), [*typed, sweeper], ["border-train"]))
    sweep.begin()
    folder = tmp_path / "seed-1"
    sweep.add(0, [*typed, "seed=1"], folder)
    folder.mkdir()
    write_json(folder / "run.json", {"status": "done", "best_score": 9.0, "final_score": 4.0})
    assert sweep.row_of(folder).score == 4.0
    assert [row.score for row in sweep.rows()] == [4.0]
