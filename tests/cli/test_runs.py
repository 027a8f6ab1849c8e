"""`border-runs`: listing, comparing and removing runs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from border_cli.run.lock import RunLock
from border_cli.run.sweep_folder import write_sweep
from border_cli.sweep.names import make_sweep_job, merge_plan
from tests.support.commands import runs_status
from tests.support.written_runs import write_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(folder: Path) -> Path:
    """The runs outputs/a (dqn, newest), outputs/b (sac) and outputs/c (failed)."""
    outputs = folder / "outputs"
    write_run(outputs / "a", started="2026-01-03T00:00:00+0000")
    write_run(outputs / "b", {"agent": "sac", "agent.gamma": 0.9}, best_score=321.5)
    write_run(outputs / "c", status="failed", exit_reason="ValueError: x", best_score=None)
    return outputs


def list_as_json(capsys: Capture, *argv: str) -> list[dict[str, Any]]:
    """Runs `border-runs --json` and returns the list that it prints."""
    assert runs_status(*argv, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert isinstance(rows, list)
    return rows


@pytest.mark.usefixtures("runs")
def test_the_newest_run_comes_first(capsys: Capture) -> None:
    assert runs_status() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["outputs/a", "outputs/c", "outputs/b"]
    done = lines[3].split()
    assert done[:9] == ["done", "sac", "cartpole", "0", "321.5", "150.0", "400", "800", "1:00"]
    assert lines[4] == "3 runs: 2 done, 1 failed"


@pytest.mark.usefixtures("runs")
def test_conditions_and_order_are_typed(capsys: Capture) -> None:
    rows = list_as_json(capsys, "outputs", "--where", "best>100", "--sort", "best")
    assert [Path(row["folder"]).name for row in rows] == ["b", "a"]
    assert rows[0]["settings"]["agent.gamma"] == 0.9
    assert rows[0]["duration_s"] == 60.0
    assert runs_status("--where", "best>1000") == 0
    assert capsys.readouterr().out == "none of 3 runs meets best>1000\n"
    assert list_as_json(capsys, "--where", "best>1000") == []


@pytest.mark.usefixtures("folder")
def test_without_runs_there_is_an_empty_list(capsys: Capture) -> None:
    assert list_as_json(capsys) == []
    assert runs_status() == 0
    assert capsys.readouterr().out == "no runs in outputs\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("nowhere",), "no such directory: nowhere"),
        (("--srt", "best"), "unrecognized arguments: --srt"),
        (("--where", "agnt=dqn"), "did you mean agent?"),
        (("diff", "outputs/a"), "diff compares two run directories, got 1"),
        (("rm", "outputs/a"), "add --yes"),
        (("prune", "outputs", "--keep", "x"), "--keep must be an integer of at least 0, got 'x'"),
    ],
)
def test_what_is_not_understood_is_refused(
    argv: tuple[str, ...],
    message: str,
    runs: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    before = sorted(runs.rglob("*"))
    assert runs_status(*argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("border-runs: ")
    assert message in said
    assert sorted(runs.rglob("*")) == before


def test_names_of_others_cannot_steer_the_terminal(runs: Path, capsys: Capture) -> None:
    write_run(runs / "d", {"agent": "a\x1b[2J"}, status="f\nailed")
    assert runs_status("outputs/d") == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "best/score.json"])
def test_a_pipe_in_place_of_a_file_does_not_block_the_list(
    name: str, runs: Path, capsys: Capture
) -> None:
    pipe = write_run(runs / "d") / name
    pipe.parent.mkdir(exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    assert len(list_as_json(capsys, "outputs")) == 4


@pytest.fixture
def sweep(folder: Path) -> Path:
    """A sweep over `agent.gamma` and seed with jobs that are done, failed, lost and not started."""
    root = folder / "sweep"
    root.mkdir()
    jobs = [make_sweep_job(n, ["agent.gamma=0.9", f"seed={n}"], str(n)) for n in range(4)]
    command = ["border-train", "-m"]
    write_sweep(root, merge_plan(jobs, command=command, launcher="basic", common=[]))
    write_run(root / "0", {"agent.gamma": 0.9})
    write_run(root / "1", status="failed", exit_reason="ValueError: no", best_score=None)
    (root / "2").mkdir()
    (root / "2" / "run.lock").touch()
    return root


@pytest.mark.usefixtures("sweep")
def test_a_sweep_is_listed_by_its_jobs_with_those_that_have_no_run(capsys: Capture) -> None:
    assert runs_status("sweep") == 0
    lines = capsys.readouterr().out.splitlines()
    statuses = [line.split()[1] for line in lines[1:5]]
    assert statuses == ["done", "failed", "lost", "not"]
    assert lines[5] == "job 1 failed: ValueError: no"
    assert lines[-1] == "4 jobs: 1 done, 1 failed, 1 lost, 1 not started"
    rows = list_as_json(capsys, "sweep", "--where", "status=not* seed=3")
    assert [(row["job"], row["settings"]["agent.gamma"]) for row in rows] == [(3, "0.9")]


def test_a_difference_names_what_differs(runs: Path, capsys: Capture) -> None:
    write_run(runs / "d", versions={"torch": "2.6"}, git={"commit": "1b", "dirty": True})
    other = {"versions": {"torch": "2.7"}, "git": {"commit": "2c", "dirty": True}}
    write_run(runs / "e", {"agent.gamma": 0.5, "agent.tau": 0.1}, best_score=1.0, **other)
    assert runs_status("diff", "outputs/d", "outputs/e") == 0
    assert capsys.readouterr().out.splitlines() == [
        "A  outputs/d",
        "B  outputs/e",
        "settings",
        "  agent.gamma: 0.99 -> 0.5",
        "  agent.tau: null -> 0.1",
        "versions",
        "  torch: 2.6 -> 2.7",
        "commit",
        "  commit: 1b -> 2c",
        "results",
        "  best: 200.0 -> 1.0",
    ]
    assert runs_status("diff", "outputs/d", "outputs/e", "--json") == 0
    assert json.loads(capsys.readouterr().out)["settings"]["agent.gamma"] == [0.99, 0.5]


def test_rm_says_what_it_frees_and_removes_what_was_chosen(runs: Path, capsys: Capture) -> None:
    assert runs_status("rm", "outputs", "--where", "status=failed", "--yes") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("outputs/c  ")
    assert said[-1].startswith("freed ")
    assert sorted(path.name for path in runs.iterdir()) == ["a", "b"]


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("n", "abc"), ("", "abc"), ("y", "bc")])
def test_rm_asks(
    answer: str, left: str, runs: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    assert runs_status("rm", "outputs/a") == 0
    assert "[y/N]" in capsys.readouterr().out
    assert "".join(sorted(path.name for path in runs.iterdir())) == left


def test_a_living_run_is_left_and_the_status_says_so(runs: Path, capsys: Capture) -> None:
    with RunLock(runs / "a"):
        assert runs_status("rm", "outputs", "--yes") == 1
    assert "outputs/a is running" in capsys.readouterr().err
    assert [path.name for path in runs.iterdir()] == ["a"]
    assert (runs / "a" / "run.json").is_file()


@pytest.mark.parametrize("command", ["rm", "prune"])
@pytest.mark.parametrize("place", ["../victim", "{folder}/victim"])
def test_runs_beside_a_sweep_stay(
    command: str, place: str, sweep: Path, folder: Path, capsys: Capture
) -> None:
    victim = write_run(folder / "victim", {"agent.gamma": 0.9})
    before = sorted(victim.rglob("*"))
    text = (sweep / "sweep.json").read_text()
    place = place.format(folder=folder)
    (sweep / "sweep.json").write_text(text.replace('"folder": "0"', f'"folder": "{place}"'))
    assert runs_status(command, "sweep", "--yes") == 2
    assert (
        "the folder of a job must be a name in the directory of the sweep"
        in capsys.readouterr().err
    )
    (sweep / "sweep.json").write_text(text)
    (sweep / "0").rename(folder / "moved")
    (sweep / "0").symlink_to(victim)
    assert runs_status(command, "sweep", "--yes") == 1
    assert f"is a link to {victim}: name that directory" in capsys.readouterr().err
    assert sorted(victim.rglob("*")) == before


def test_a_sweep_goes_with_its_last_run(sweep: Path, capsys: Capture) -> None:
    assert runs_status("rm", "sweep", "--where", "status=failed", "--yes") == 0
    assert (sweep / "sweep.json").is_file()
    assert runs_status("rm", "sweep", "--yes") == 0
    assert capsys.readouterr().err == ""
    assert not (sweep / "sweep.json").exists()


@pytest.mark.usefixtures("runs")
def test_a_list_imports_neither_numpy_nor_hydra_nor_a_console() -> None:
    code = (
        "import sys; from border_cli.cli.runs import main; main(['outputs', '--sort', 'best']); "
        "print([name for name in ('numpy', 'torch', 'hydra', 'rich.console', 'yaml') "
        "if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert said.stdout.splitlines()[-1] == "[]"
