"""Removing runs, sweeps and old checkpoints; foreign files and active runs are left alone."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from border_cli.errors import CheckpointError, ConfigError
from border_cli.run.finding import find_checkpoint, steps_saved
from border_cli.run.lock import RunLock
from border_cli.run.removal import (
    nbytes_of,
    prune,
    refuse_removal,
    remove_run,
    remove_sweep,
    surplus_of,
)
from border_cli.run.status import SKIPPED, record_not_begun
from border_cli.run.sweep_folder import SweepJob, SweepPlan, write_sweep
from tests.support.small_run import SmallRun
from tests.support.written_runs import without_end, write_run

MakeRun = Callable[..., SmallRun]


@pytest.fixture
def run(tmp_path: Path, make_run: MakeRun) -> SmallRun:
    """Run with checkpoints 10, 20 and 30, their transitions, and the best model at 20."""
    folder = write_run(tmp_path / "runs" / "run")
    case = make_run(folder)
    case.save_best(10, 1.0)
    case.save_best(20, 2.0)
    for opt_steps in (10, 20, 30):
        case.save(opt_steps, push=10)
    case.store.close()
    return case


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def files_nbytes(folder: Path) -> int:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    inside = [path for path in files if path.resolve().is_relative_to(folder.resolve())]
    return sum(path.stat().st_size for path in {path.resolve() for path in inside})


def test_a_run_is_removed_whole_and_its_size_is_known_before(run: SmallRun) -> None:
    folder = run.run_dir
    whole = files_nbytes(folder)
    assert nbytes_of(folder) == whole > 0
    assert remove_run(folder)
    assert everything(folder.parent) == []


def test_leftovers_of_killed_processes_go_with_it(run: SmallRun) -> None:
    folder = run.run_dir
    (folder / ".run.json.0123abcd.tmp").touch()
    (folder / ".hydra" / ".resolved.yaml.0123abcd.tmp").touch()
    (folder / "checkpoints" / ".0000000040.partial").mkdir()
    assert remove_run(folder)
    assert everything(folder.parent) == []


def test_files_of_the_user_stay_with_their_folders(run: SmallRun) -> None:
    folder = run.run_dir
    for path in (folder / "notes.md", folder / "checkpoints" / "0000000010" / "mine.npz"):
        path.write_text("mine", encoding="utf-8")
    assert not remove_run(folder)
    assert everything(folder) == [
        *("checkpoints", "checkpoints/0000000010", "checkpoints/0000000010/mine.npz"),
        "notes.md",
    ]


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/0000000010", "metrics.jsonl"])
def test_a_link_in_the_place_of_ours_is_refused_and_nothing_behind_it_removed(
    name: str, run: SmallRun, tmp_path: Path
) -> None:
    path, outside = run.run_dir / name, tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    before = everything(tmp_path)
    for remove in (remove_run, partial(prune, keep=1, milestone_interval=0)):
        with pytest.raises(ConfigError, match=f"{name} is a link to {outside}"):
            remove(run.run_dir)
    assert everything(tmp_path) == before


def test_a_link_to_a_run_is_refused(run: SmallRun, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run.run_dir)
    before = everything(run.run_dir)
    with pytest.raises(ConfigError, match="is a link to"):
        remove_run(link)
    assert everything(run.run_dir) == before


def test_a_running_run_is_never_touched(run: SmallRun) -> None:
    folder = run.run_dir
    before = everything(folder)
    with RunLock(folder):
        for remove in (refuse_removal, remove_run, partial(prune, keep=1, milestone_interval=0)):
            with pytest.raises(ConfigError, match="is running: process 1 on here"):
                remove(folder)
    assert everything(folder) == sorted([*before, "run.lock"])


def test_a_run_that_another_host_may_be_running_is_left_to_that(tmp_path: Path) -> None:
    theirs = write_run(tmp_path / "theirs", **without_end(host="elsewhere"))
    with pytest.raises(ConfigError, match="may be running on elsewhere"):
        remove_run(theirs)
    assert (theirs / "run.json").is_file()
    assert remove_run(write_run(tmp_path / "ours", **without_end(host=platform.node())))


def test_the_files_of_a_sweep_go_and_what_is_beside_them_stays(tmp_path: Path) -> None:
    def write_files() -> None:
        jobs = [SweepJob(number=n, overrides=(), folder=str(n)) for n in range(2)]
        write_sweep(tmp_path, SweepPlan(command=[], launcher="basic", swept=[], jobs=jobs))
        record_not_begun(tmp_path / "1", command=[], reason="refused", status=SKIPPED)
        for name in ("sweep.csv", "sweep.stop"):
            (tmp_path / name).touch()

    write_files()
    (tmp_path / "plot.png").touch()
    assert not remove_sweep(tmp_path)
    assert everything(tmp_path) == ["plot.png"]
    (tmp_path / "plot.png").unlink()
    write_files()
    assert remove_sweep(tmp_path)


def test_the_sweep_of_another_program_stays(tmp_path: Path) -> None:
    names = ["sweep.csv", "sweep.json", "sweep.stop"]
    for name in names:
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert not remove_sweep(tmp_path)
    assert everything(tmp_path) == names


@pytest.mark.parametrize("record", ["{}", '{"status": "done", "attempts": [{"pid": 1}]}', "["])
def test_a_directory_that_only_has_our_names_is_left_as_it_is(record: str, run: SmallRun) -> None:
    folder = run.run_dir
    (folder / "run.json").write_text(record, encoding="utf-8")
    before = everything(folder)
    for remove in (remove_run, partial(prune, keep=1, milestone_interval=0)):
        with pytest.raises(ConfigError, match=r"neither run\.json nor \.hydra/resolved\.yaml"):
            remove(folder)
    assert everything(folder) == before


def test_pruning_keeps_the_newest_checkpoint_and_the_best_model(run: SmallRun) -> None:
    folder = run.run_dir
    surplus = surplus_of(folder, keep=1, milestone_interval=0)
    before = files_nbytes(folder)
    prune(folder, keep=1, milestone_interval=0)
    assert surplus.checkpoints == 2  # 10 and 20
    assert before - files_nbytes(folder) == surplus.nbytes
    assert run.there == ["0000000030", "best-0000000020", "latest"]
    assert find_checkpoint(folder, "latest").name == "0000000030"
    assert find_checkpoint(folder, "best").name == "best-0000000020"
    run.resume()
    assert run.numbers == list(range(30))  # transitions of all three saves
    assert surplus_of(folder, keep=1, milestone_interval=0).checkpoints == 0


def test_with_keep_0_only_the_best_model_and_milestones_stay(run: SmallRun) -> None:
    prune(run.run_dir, keep=0, milestone_interval=20)
    assert run.there == ["0000000020", "best-0000000020"]
    assert run.chunks == []
    prune(run.run_dir, keep=0, milestone_interval=0)
    assert run.there == ["best-0000000020"]
    assert run.weights("best") == "weights 20"


def test_without_a_best_model_a_last_checkpoint_stays(tmp_path: Path, make_run: MakeRun) -> None:
    case = make_run(write_run(tmp_path / "run"))
    case.save(10)
    case.store.close()
    with pytest.raises(ConfigError, match="it has no best model, so no checkpoint would remain"):
        prune(case.run_dir, keep=0, milestone_interval=0)
    assert steps_saved(case.run_dir) == [10]


@pytest.mark.parametrize("milestone_interval", [0, 10])
def test_nothing_is_pruned_where_what_would_stay_is_damaged(
    run: SmallRun, milestone_interval: int
) -> None:
    before = everything(run.run_dir)
    (run.folder / "0000000030" / "agent.npz").write_text("torn", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"agent\.npz is damaged"):
        prune(run.run_dir, keep=1, milestone_interval=milestone_interval)
    assert everything(run.run_dir) == sorted([*before, "run.lock"])
