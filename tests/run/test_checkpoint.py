"""Checkpoints are complete or not there."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Evaluation
from border_cli.nn.saving import save_state
from border_cli.run.checkpoint import (
    CheckpointStore,
    find_checkpoint,
    read_document,
    steps_saved,
    verify,
)
from border_cli.run.files import aside, partial

COUNTERS = {"env_steps": 7, "samples_total": 7, "time_s": 0.5}


class Disk:
    """Saves the number of the state; `full` makes it fail in the middle of the file."""

    def __init__(self) -> None:
        self.full = False

    def __call__(self, state: Mapping[str, Any], path: Path) -> None:
        path.write_text(f"weights {state['n']}")
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


class Case:
    def __init__(self, run_dir: Path, keep: int = 3) -> None:
        self.run_dir = run_dir
        self.folder = run_dir / "checkpoints"
        self.disk = Disk()
        self.store = CheckpointStore(run_dir, keep=keep, save_state=self.disk)

    def save(self, opt_steps: int, n: int | None = None) -> None:
        state = {"n": opt_steps if n is None else n}
        self.store.save(state, {"opt_steps": opt_steps, **COUNTERS})

    def save_best(self, opt_steps: int, score: float) -> None:
        evaluation = Evaluation(
            score=score, returns=(score,), lengths=(1,), metrics={"eval/return": score}
        )
        counters = {"opt_steps": opt_steps, **COUNTERS}
        self.store.save_best({"n": opt_steps}, counters, evaluation)

    def weights(self, which: str) -> str:
        folder = find_checkpoint(self.run_dir, which)
        verify(folder)
        return (folder / "agent.pt").read_text()

    @property
    def there(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_checkpoint_is_named_by_its_steps_in_ten_digits(case: Case) -> None:
    case.save(10_000)
    assert case.there == ["0000010000", "latest"]
    assert sorted(each.name for each in (case.folder / "0000010000").iterdir()) == [
        "agent.pt",
        "manifest.json",
        "state.json",
    ]
    state = read_document(case.folder / "0000010000", "state.json")
    assert state == {"opt_steps": 10_000, **COUNTERS}


def test_the_newest_are_kept_and_latest_points_at_the_last_right_after_each_save(
    case: Case,
) -> None:
    for opt_steps in (5, 10, 15, 20, 100_000):
        case.save(opt_steps)
        assert str((case.folder / "latest").readlink()) == f"{opt_steps:010d}"
        assert case.weights("latest") == f"weights {opt_steps}"
    assert case.there == ["0000000015", "0000000020", "0000100000", "latest"]
    assert steps_saved(case.run_dir) == [15, 20, 100_000]


def test_the_best_is_replaced_and_linked_right_after_each_save(case: Case) -> None:
    for opt_steps, score in ((10, 1.0), (20, 2.0), (30, 3.0)):
        case.save_best(opt_steps, score)
        link = case.run_dir / "best"
        assert str(link.readlink()) == f"checkpoints/best-{opt_steps:010d}"
        document = read_document(link, "score.json")
        assert (document["score"], document["opt_steps"]) == (score, opt_steps)
        assert document["returns"] == [score]
        assert case.weights("best") == f"weights {opt_steps}"


def test_who_reads_the_best_model_is_not_disturbed_by_the_next_best(case: Case) -> None:
    case.save_best(10, 1.0)
    reading = find_checkpoint(case.run_dir, "best")
    case.save_best(20, 2.0)
    verify(reading)
    case.save_best(30, 3.0)
    assert case.there == ["best-0000000020", "best-0000000030"]


def test_best_models_are_not_counted_as_checkpoints(case: Case) -> None:
    case.save_best(10, 1.0)
    for opt_steps in (10, 20, 30, 40):
        case.save(opt_steps)
    assert steps_saved(case.run_dir) == [20, 30, 40]
    assert case.weights("best") == "weights 10"


def test_saving_the_same_step_again_replaces_it(case: Case) -> None:
    case.save(10, n=1)
    case.save(10, n=2)
    assert case.weights("10") == "weights 2"
    assert case.there == ["0000000010", "latest"]


@pytest.mark.parametrize("before", [[10], [10, 20, 30]])
def test_a_full_disk_leaves_nothing_new_and_the_old_intact(case: Case, before: list[int]) -> None:
    for opt_steps in before:
        case.save(opt_steps)
    there = case.there
    case.disk.full = True
    with pytest.raises(OSError, match="No space left"):
        case.save(40)
    with pytest.raises(OSError, match="No space left"):
        case.save(before[-1], n=99)
    assert case.there == there
    assert case.weights("latest") == f"weights {before[-1]}"


def test_a_full_disk_leaves_the_best_model(case: Case) -> None:
    case.save_best(10, 1.0)
    case.disk.full = True
    with pytest.raises(OSError, match="No space left"):
        case.save_best(20, 2.0)
    assert case.weights("best") == "weights 10"
    assert case.there == ["best-0000000010"]


def test_a_step_that_was_being_replaced_when_the_process_was_killed_is_found(case: Case) -> None:
    case.save(10, n=1)
    place = case.folder / "0000000010"
    place.rename(aside(place))
    partial(place).mkdir()
    assert case.weights("10") == "weights 1"
    assert case.weights("latest") == "weights 1"


def test_the_first_save_puts_in_order_what_a_killed_process_left(case: Case) -> None:
    case.save(10, n=1)
    place = case.folder / "0000000010"
    place.rename(aside(place))
    partial(case.folder / "0000000020").mkdir()
    again = Case(case.run_dir)
    again.save(30)
    assert again.there == ["0000000010", "0000000030", "latest"]
    assert again.weights("10") == "weights 1"


def test_a_run_that_starts_again_in_its_folder_never_drops_what_it_just_saved(case: Case) -> None:
    for opt_steps in (10, 20, 30):
        case.save(opt_steps)
    again = Case(case.run_dir)
    for opt_steps, kept in ((5, [5, 20, 30]), (10, [5, 10, 30]), (15, [5, 10, 15])):
        again.save(opt_steps)
        assert steps_saved(case.run_dir) == kept
        assert again.weights("latest") == f"weights {opt_steps}"


def test_what_is_half_written_or_not_ours_is_not_picked_up(case: Case) -> None:
    case.save(10)
    partial(case.folder / "0000000020").mkdir()
    (partial(case.folder / "0000000020") / "manifest.json").write_text("{}")
    (case.folder / "0000000030").mkdir()  # without a manifest
    for name in ("12", "²", "notes"):
        (case.folder / name).mkdir()
        (case.folder / name / "manifest.json").write_text("{}")
    assert steps_saved(case.run_dir) == [10]
    assert case.weights("latest") == "weights 10"


def test_latest_is_the_newest_complete_one_where_the_link_is_lost(case: Case) -> None:
    case.save(10)
    case.save(20)
    (case.folder / "latest").unlink()
    assert case.weights("latest") == "weights 20"


@pytest.mark.parametrize("which", ["best", "30", "0000000030"])
def test_what_is_not_there_is_refused_with_what_is(case: Case, which: str) -> None:
    case.save(10)
    case.save(20)
    with pytest.raises(CheckpointError, match=rf"has no checkpoint {which}\. There: 10, 20$"):
        find_checkpoint(case.run_dir, which)


def test_the_best_is_listed_too_and_an_empty_run_has_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no checkpoint latest\. There: none$"):
        find_checkpoint(tmp_path, "latest")
    case = Case(tmp_path)
    case.save_best(10, 1.0)
    with pytest.raises(CheckpointError, match=r"has no checkpoint latest\. There: best$"):
        find_checkpoint(tmp_path, "latest")


@pytest.mark.parametrize("which", ["newest", "-1", "1.5", "²", ""])
def test_a_word_that_is_no_checkpoint_is_refused(case: Case, which: str) -> None:
    case.save(1)
    with pytest.raises(CheckpointError, match="must be best, latest or a step, got"):
        find_checkpoint(case.run_dir, which)


def test_a_flipped_bit_is_named(case: Case) -> None:
    case.save(10)
    path = find_checkpoint(case.run_dir, "10") / "agent.pt"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r"0000000010/agent\.pt is damaged: its checksum"):
        verify(path.parent)


def test_a_missing_file_is_named(case: Case) -> None:
    case.save(10)
    folder = find_checkpoint(case.run_dir, "10")
    (folder / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"0000000010/state\.json is missing"):
        verify(folder)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ('{"format": 99, "sha256": {}}', "has checkpoint format 99, this version reads 1"),
        ('{"format": 1}', "has checkpoint format 1, this"),
        ("{}", "has checkpoint format None"),
        ("[]", r"manifest\.json cannot be read: it holds no JSON object"),
        ("{", r"manifest\.json cannot be read: Expecting"),
    ],
)
def test_a_foreign_format_is_refused(case: Case, manifest: str, message: str) -> None:
    case.save(10)
    folder = find_checkpoint(case.run_dir, "10")
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(CheckpointError, match=message):
        verify(folder)


def test_the_manifest_names_the_versions_and_every_other_file(case: Case) -> None:
    case.save_best(10, 1.0)
    manifest = json.loads((case.run_dir / "best" / "manifest.json").read_text())
    assert sorted(manifest["sha256"]) == ["agent.pt", "score.json", "state.json"]
    assert {"python", "torch", "numpy"} <= set(manifest["versions"])


def test_weights_are_readable_by_torch_without_running_code(tmp_path: Path) -> None:
    weights = torch.arange(6.0).reshape(2, 3)
    store = CheckpointStore(tmp_path, keep=1, save_state=save_state)
    store.save({"online": {"w": weights}, "opt_steps": 4}, {"opt_steps": 4})
    state = torch.load(tmp_path / "checkpoints" / "latest" / "agent.pt", weights_only=True)
    assert state["opt_steps"] == 4
    assert torch.equal(state["online"]["w"], weights)
