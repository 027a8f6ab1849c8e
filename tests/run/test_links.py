"""What is not ours in a run directory, or lies behind a link in it, is never touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from saves import SmallRun

from border_cli.errors import ConfigError
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_checkpoint, resumable, steps_saved
from border_cli.run.layout import refuse_foreign

MakeRun = Callable[..., SmallRun]


def moved_and_linked(path: Path, elsewhere: Path) -> None:
    """Moves a file or folder away, and links to it."""
    elsewhere.mkdir()
    target = elsewhere / path.name
    path.rename(target)
    path.symlink_to(target)


OURS = (
    *("run.lock", "metrics.jsonl", "sweep.csv", ".hydra/resolved.yaml", ".run.json.0123abcd.tmp"),
    *("events.out.tfevents.1.host.1.0.border", "checkpoints/0000000010/agent.pt", "videos"),
    *("checkpoints/replay/rows-0000000000-0000000009-aaaaaaaa.npy", "checkpoints", ".hydra"),
)


@pytest.mark.parametrize("name", OURS)
def test_a_link_in_the_place_of_ours_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "run" / name, tmp_path / "target"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match=f"{name} is a link to {target}, and a run writes"):
        refuse_foreign(tmp_path / "run")


def test_a_run_directory_behind_a_link_and_things_of_others_in_it_are_fine(
    make_run: MakeRun, tmp_path: Path
) -> None:
    disk = tmp_path / "other disk"
    disk.mkdir()
    (tmp_path / "run").symlink_to(disk)
    case = make_run(tmp_path / "run")
    case.save_best(10, 1.0)
    case.save(10, push=5)
    for place in (disk, case.folder, case.folder / "replay", case.folder / "0000000010"):
        (place / "mine").symlink_to(tmp_path)
    refuse_foreign(tmp_path / "run")
    assert case.save(20, push=5)
    assert resumable(disk)
    refuse_foreign(tmp_path / "nowhere")


def test_models_and_checkpoints_are_still_read_through_links(
    case: SmallRun, tmp_path: Path
) -> None:
    case.save_best(10, 1.0)
    case.save(10, push=30)
    moved_and_linked(case.folder / "0000000010", tmp_path / "a")
    moved_and_linked(case.folder / "replay", tmp_path / "b")
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
        *("0000000010/notes.md", "0000000010/agent.pt.bak", "best-0000000010/video.mp4"),
        *("best-of-all/agent.pt", "replay/rows-5-9.npy", ".mine.partial/agent.pt"),
    )
    for name in mine:
        (case.folder / name).write_text("mine")
    for opt_steps in (20, 30):
        case.save_best(opt_steps, float(opt_steps))
        case.save(opt_steps, push=5)
    make_run(keep=1, capacity=5).save(40, push=5)
    assert {(case.folder / name).read_text() for name in mine} == {"mine"}
    assert not (case.folder / "0000000010" / "agent.pt").exists()
