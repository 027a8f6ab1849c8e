"""Checkpoint lookup by name; an unknown name raises an error that lists the available ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.errors import CheckpointError
from border_cli.run.finding import (
    best_score,
    find_checkpoint,
    find_resumable,
    find_weights,
    read_model,
    steps_saved,
)
from border_cli.run.folders import point_link
from border_cli.run.layout import partial_of

NAME = "0000000020"


def test_what_is_half_written_or_not_ours_is_not_picked_up(run_dir: Path) -> None:
    folder = run_dir / "checkpoints"
    partial_of(folder / "0000000040").mkdir()
    (folder / "0000000030").mkdir()  # without a manifest
    for name in ("12", "²", "notes"):
        (folder / name).mkdir()
        (folder / name / "manifest.json").write_text("{}")
    assert steps_saved(run_dir) == [10, 20]
    assert [checkpoint.name for checkpoint in find_resumable(run_dir)] == [
        "0000000020",
        "0000000010",
    ]
    assert find_checkpoint(run_dir, "latest").name == NAME


def test_without_any_folder_there_is_nothing(tmp_path: Path) -> None:
    assert find_resumable(tmp_path) == []
    assert steps_saved(tmp_path) == []
    assert best_score(tmp_path) is None
    with pytest.raises(CheckpointError, match=r"has no checkpoint latest \(choose from none\)$"):
        find_checkpoint(tmp_path, "latest")


@pytest.mark.parametrize("target", [None, "0000000099", "replay", "/nowhere"])
def test_latest_is_the_newest_complete_one_where_the_link_is_broken(
    run_dir: Path, target: str | None
) -> None:
    link = run_dir / "checkpoints" / "latest"
    link.unlink()
    if target is not None:
        link.symlink_to(target)
    assert find_checkpoint(run_dir, "latest").name == NAME


@pytest.mark.parametrize("target", [None, "checkpoints/best-0000000099"])
def test_a_best_model_whose_link_is_broken_is_refused_with_what_is_there(
    run_dir: Path, target: str | None
) -> None:
    link = run_dir / "best"
    link.unlink()
    if target is not None:
        link.symlink_to(target)
    with pytest.raises(
        CheckpointError, match=r"has no checkpoint best \(choose from 10, 20, latest\)$"
    ):
        find_checkpoint(run_dir, "best")
    assert best_score(run_dir) is None
    assert find_weights(run_dir).name == NAME  # the latest


@pytest.mark.parametrize("which", ["30", "0000000030"])
def test_a_missing_step_is_refused_with_the_available_checkpoints(
    run_dir: Path, which: str
) -> None:
    with pytest.raises(
        CheckpointError, match=rf"no checkpoint {which} \(choose from best, 10, 20, latest\)$"
    ):
        find_checkpoint(run_dir, which)


@pytest.mark.parametrize("which", ["newest", "-1", "1.5", "²", ""])
def test_a_word_that_is_no_checkpoint_is_refused(run_dir: Path, which: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"has no checkpoint .* \(choose from best, 10, 20, latest\)$"
    ):
        find_checkpoint(run_dir, which)


def test_weights_to_begin_with_are_those_of_the_best_model_or_of_a_checkpoint(
    run_dir: Path,
) -> None:
    assert find_weights(run_dir).name == "best-0000000010"
    for name in ("latest", "20"):
        assert find_weights(run_dir / "checkpoints" / name).resolve().name == NAME
    with pytest.raises(CheckpointError, match=r"no such directory: .*nowhere; the run is"):
        find_weights(run_dir / "nowhere")


class Training:
    """A reader of models; during its first read the run rotates the checkpoint away."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.read: list[str] = []

    def __call__(self, folder: Path) -> bytes:
        self.read.append(folder.name)
        if len(self.read) == 1:
            folder.rename(folder.with_name("0000000030"))
            point_link(self.run_dir / "checkpoints" / "latest", "0000000030")
        try:
            return (folder / "agent.npz").read_bytes()
        except OSError as error:
            raise CheckpointError("cannot be read") from error


def test_a_model_that_is_rotated_away_is_looked_up_again(run_dir: Path) -> None:
    saved = (run_dir / "checkpoints" / NAME / "agent.npz").read_bytes()
    training = Training(run_dir)
    folder, content = read_model(lambda: find_checkpoint(run_dir, "latest"), training)
    assert training.read == [NAME, "0000000030"]
    assert (folder.name, content) == ("0000000030", saved)


def test_a_number_that_is_rotated_away_is_refused_with_what_there_is(run_dir: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"no checkpoint 20 \(choose from best, 10, 30, latest\)$"
    ):
        read_model(lambda: find_checkpoint(run_dir, "20"), Training(run_dir))


def test_the_best_score_is_that_of_the_saved_model(run_dir: Path) -> None:
    assert best_score(run_dir) == (1.5, 10)
    (run_dir / "best" / "agent.npz").write_text("torn")
    assert best_score(run_dir) is None
