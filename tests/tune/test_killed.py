"""Studies that are killed, interrupted, shared by two commands or out of disk space: no trial is
lost or trained twice, and the scores equal those of an undisturbed study."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import optuna
import pytest

from border_cli.run.finding import steps_saved
from border_cli.run.sweep_folder import sweep_lock
from tests.support import leftovers
from tests.support.case_sampling import thinned, weekly
from tests.support.commands import Command, facts_of, is_pending, is_stopped
from tests.support.postgres import running_postgres

pytestmark = pytest.mark.slow

STUDY = (  # two rungs: 600 and 1,200 env steps
    *("agent=dqn", "env=cartpole", "study=S", "-cd", "conf", "search=mine", "sampler=random"),
    *("trainer=sync", "trainer.max_env_steps=1200", "trainer.eval_interval_env_steps=300"),
    *("trainer.warmup_period=8", "trainer.save_interval=20", "evaluator.num_episodes=1"),
    *("agent.hidden=[4]", "agent.batch_size=4", "trials=3", "rungs=2", "seeds=2"),
    *("jobs=1", "fresh_seeds=0", "max_cost=0.9"),
)
DEADLINE_S = 600.0  # a study takes minutes on a busy machine
SPACE = "hyperparameters: {agent.gamma: {low: 0.9, high: 0.99}}\n"
COMPARED = ("number", "status", "budget", "scores", "settings")  # fields of a trial


def prepare_folder(folder: Path) -> Path:
    (folder / "conf/search").mkdir(parents=True, exist_ok=True)
    (folder / "conf/search/mine.yaml").write_text(SPACE, encoding="utf-8")
    return folder


def tuning(folder: Path, *argv: str) -> Command:
    return Command(folder, *STUDY, *argv, module="border_cli.cli.tune", deadline_s=DEADLINE_S)


def run_to_end(folder: Path, *argv: str) -> str:
    with tuning(folder, *argv) as command:
        status, output = command.ended()
    assert status == 0, output
    return output


def trials_of(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "S/trials.json").read_text(encoding="utf-8"))
    return [{name: row[name] for name in COMPARED} for row in rows]


def run_of(folder: Path, trial: int, seed: int = 0) -> Path:
    return folder / f"S/trial-{trial:04}/seed-{seed}"


def status_of(run: Path) -> str:
    return str(facts_of(run)["status"]) if (run / "run.json").exists() else ""


def running_with_checkpoint(run: Path) -> Callable[[], bool]:
    return lambda: status_of(run) == "running" and bool(steps_saved(run))


def check_all_done(
    folder: Path, url: str = "", *, seeds: Sequence[int] = (0, 1)
) -> list[dict[str, Any]]:
    """Checks that all runs have reached the budgets of their trials and that no trial is RUNNING in
    Optuna's storage; returns the trials. N-step windows hold a few env steps beyond a budget."""
    rows = trials_of(folder)
    for row in rows:
        for seed in seeds:
            facts = facts_of(run_of(folder, row["number"], seed))
            assert facts["status"] == "done"
            assert row["budget"] <= facts["env_steps"] < row["budget"] + 10
    storage = optuna.storages.RDBStorage(url or f"sqlite:///{folder / 'S/study.db'}")
    states = [trial.state.name for trial in storage.get_all_trials(1)]
    storage.engine.dispose()
    assert [state.lower() for state in states] == [row["status"] for row in rows]
    assert {*states} <= {"COMPLETE", "PRUNED"}
    return rows


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The trials of the study if nothing disturbs it."""
    folder = prepare_folder(tmp_path_factory.mktemp("undisturbed"))
    run_to_end(folder)
    return check_all_done(folder)


@pytest.mark.long
def test_kills_and_ctrl_c_do_not_change_the_scores_of_a_study(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    folder = prepare_folder(tmp_path)
    with tuning(folder) as command:  # kill a run, then interrupt the command during another
        first, later = run_of(folder, 0), run_of(folder, 1)
        command.until(running_with_checkpoint(first))
        os.kill(facts_of(first)["pid"], signal.SIGKILL)
        command.until(running_with_checkpoint(later))
        pid = facts_of(later)["pid"]
        os.kill(pid, signal.SIGSTOP)  # the run must not finish before the signal
        command.send(signal.SIGINT)
        command.until(lambda: is_pending(pid, signal.SIGINT))
        os.kill(pid, signal.SIGCONT)
        status, output = command.ended()
    assert status == 130
    assert "Traceback" not in output
    assert "\nresume with: border-tune agent=dqn env=cartpole study=S " in output
    assert [len(facts_of(run)["attempts"]) for run in (first, run_of(folder, 0, 1))] == [2, 1]
    assert status_of(later) == "interrupted"
    assert steps_saved(later)
    with tuning(folder) as command:  # kill the command
        last = run_of(folder, 2)
        command.until(running_with_checkpoint(last))
        pid = facts_of(last)["pid"]
        command.send(signal.SIGKILL)
        command.ended()
    assert not leftovers.wait_until_gone({pid}, 10)
    run_to_end(folder)
    assert check_all_done(folder) == undisturbed


def trainings_of(command: Command) -> int:
    """How many trainings of a trial the command has said that it begins."""
    return command.said_so_far().count(" is trained to ")


@pytest.mark.long
@pytest.mark.parametrize("storage", thinned(["sqlite", "postgres"], 2))
def test_two_commands_share_a_study_also_while_one_of_them_is_stopped(
    tmp_path: Path, storage: str
) -> None:
    folder = prepare_folder(tmp_path)
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'all.db'}"
        if storage == "postgres":
            url = stack.enter_context(running_postgres()).new_database()
        one, other = (
            stack.enter_context(tuning(folder, "trials=4", "seeds=1", f"storage='{url}'"))
            for _ in range(2)
        )
        both = [run_of(folder, trial) for trial in (0, 1)]
        one.until(lambda: all(status_of(run) in ("running", "done") for run in both))
        with sweep_lock(folder / "S"):  # which `one` must not hold while it is stopped
            one.send(signal.SIGSTOP)
            one.until(lambda: is_stopped(one.pid))
            begun = trainings_of(other)  # `one` may have taken a trial and not begun its run
        other.until(lambda: trainings_of(other) > begun)
        one.send(signal.SIGCONT)
        ends = [command.ended() for command in (one, other)]
        assert [status for status, _ in ends] == [0, 0], ends
        rows = check_all_done(folder, url, seeds=[0])
    assert [row["number"] for row in rows] == [0, 1, 2, 3]
    assert all(" is trained to 600 " in text for _, text in ends)  # both have trained trials
    for row in rows:  # no run was trained twice
        attempts = facts_of(run_of(folder, row["number"]))["attempts"]
        assert len(attempts) == (1 if row["status"] == "pruned" else 2)


@weekly
@pytest.mark.long
def test_a_full_disk_stops_a_study_until_there_is_room(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100m", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs permission to mount a file system")
    try:
        folder = prepare_folder(disk)
        with tuning(folder) as command:
            command.until(running_with_checkpoint(run_of(folder, 0)))
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(2**12))
            status, output = command.ended()
        assert status in (1, 2)
        assert "border-tune: " in output
        assert "Traceback" not in output
        (disk / "filler").unlink()
        run_to_end(folder)
        assert check_all_done(folder) == undisturbed
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
