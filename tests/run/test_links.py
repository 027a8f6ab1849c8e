"""Foreign files in a run directory, and the targets of links in it, are never touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.errors import ConfigError
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_checkpoint, find_resumable, steps_saved
from border_cli.run.layout import STUDY, layout_entries, refuse_foreign, written_files
from tests.support.small_run import SmallRun

MakeRun = Callable[..., SmallRun]


def move_and_link(path: Path, elsewhere: Path) -> None:
    """Moves a file or folder to `elsewhere` and puts a link in its old place."""
    elsewhere.mkdir()
    target = elsewhere / path.name
    path.rename(target)
    path.symlink_to(target)


OURS = (
    *("run.lock", "metrics.jsonl", "sweep.csv", ".hydra/resolved.yaml", ".run.json.0123abcd.tmp"),
    *("events.out.tfevents.1.host.1.0.border", "checkpoints/0000000010/agent.npz", "videos"),
    *("events.out.tfevents.9999999999.border", "study.db-journal", ".submitit"),
    *("checkpoints/replay/rows-0000000000-0000000009-aaaaaaaa.npy", "checkpoints", ".hydra"),
)


@pytest.mark.parametrize("name", OURS)
def test_a_link_in_the_place_of_ours_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "run" / name, tmp_path / "target"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match=f"{name} is a link to {target}, and a run writes"):
        refuse_foreign(tmp_path / "run")


def test_a_folder_that_a_run_renames_while_its_directory_is_listed_is_no_error(
    tmp_path: Path,
) -> None:
    names = [".0000000010.partial", "0000000020"]
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "agent.npz").touch()
    listed = []
    for entry, _ in layout_entries(tmp_path):
        listed.append(entry.name)
        if entry.name == names[0]:
            Path(entry.path).rename(tmp_path / "checkpoints" / "0000000010")
    assert set(names) <= set(listed)


def test_a_run_directory_behind_a_link_and_things_of_others_in_it_are_fine(
    make_run: MakeRun, tmp_path: Path
) -> None:
    disk = tmp_path / "other disk"
    disk.mkdir()
    (tmp_path / "run").symlink_to(disk)
    case = make_run(tmp_path / "run")
    case.save_best(10, 1.0)
    case.save(10, push=5)
    for folder in (disk, case.folder, case.folder / "replay", case.folder / "0000000010"):
        (folder / "mine").symlink_to(tmp_path)
    refuse_foreign(tmp_path / "run")
    assert case.save(20, push=5)
    assert find_resumable(disk)
    refuse_foreign(tmp_path / "nowhere")


def test_models_and_checkpoints_are_still_read_through_links(
    case: SmallRun, tmp_path: Path
) -> None:
    case.save_best(10, 1.0)
    case.save(10, push=30)
    move_and_link(case.folder / "0000000010", tmp_path / "a")
    move_and_link(case.folder / "replay", tmp_path / "b")
    assert steps_saved(case.run_dir) == [10]
    assert read_checkpoint(case.folder / "0000000010").opt_steps == 10
    assert find_checkpoint(case.run_dir, "best").name == "best-0000000010"


def test_files_of_others_stay_where_checkpoints_and_rows_go(make_run: MakeRun) -> None:
    case = make_run(keep=1, capacity=5)
    case.save_best(10, 1.0)
    case.save(10, push=5)
    (case.folder / "best-of-all").mkdir()
    (case.folder / ".mine.partial").mkdir()
    mine = (
        *("0000000010/notes.md", "0000000010/agent.npz.bak", "best-0000000010/video.mp4"),
        *("best-of-all/agent.npz", "replay/rows-5-9.npy", ".mine.partial/agent.npz"),
    )
    for name in mine:
        (case.folder / name).write_text("mine")
    for opt_steps in (20, 30):
        case.save_best(opt_steps, float(opt_steps))
        case.save(opt_steps, push=5)
    make_run(keep=1, capacity=5).save(40, push=5)
    assert {(case.folder / name).read_text() for name in mine} == {"mine"}
    assert not (case.folder / "0000000010" / "agent.npz").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.lock", "trackers/mlflow.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_a_pipe_or_folder_in_the_place_of_a_file_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    with pytest.raises(ConfigError, match=f"{name} is not a regular file, and a run writes one"):
        refuse_foreign(tmp_path)


STUDYS = (
    *("study.db", "trials.json", "trial-0002", "trial-0002/run.lock", "trial-0002/seed-0"),
    *("trial-0002/seed-0/job.yaml", "trial-0002/seed-0/output.log", "best/trial-0002/run.lock"),
)


@pytest.mark.parametrize("name", STUDYS)
def test_nothing_below_a_study_may_be_a_link(tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "study" / name, tmp_path / "notes"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match=f"{name} is a link to {target}"):
        refuse_foreign(tmp_path / "study", STUDY)


def test_the_files_that_a_run_has_written_are_known_by_their_paths(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    written = {"videos/0000000010.gif", ".hydra/resolved.yaml", "metrics.jsonl"}
    for name in (*written, "mine.gif", "videos/mine.gif", "best-0000000010/agent.npz"):
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).touch()
    (run_dir / "env.json").symlink_to("metrics.jsonl")
    (run_dir / "best").symlink_to("best-0000000010")
    (run_dir / "checkpoints").symlink_to(tmp_path)
    (tmp_path / "0000000010").mkdir()
    (tmp_path / "0000000010" / "agent.npz").touch()
    assert written_files(run_dir) == written


@pytest.mark.parametrize("name", ["best", "checkpoints/latest"])
def test_a_folder_in_the_place_of_a_link_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{name} is not a link, and a run writes one there"):
        refuse_foreign(tmp_path)
