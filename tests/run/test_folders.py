"""Checkpoint folders: rotation, milestones, and chunks of rows shared between checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_resumable, steps_saved
from tests.support.small_run import SmallRun

MakeRun = Callable[..., SmallRun]


def test_each_row_is_written_once_and_shared_by_the_checkpoints(case: SmallRun) -> None:
    case.save(10, push=30)
    inodes = {path: path.stat().st_ino for path in (case.folder / "replay").iterdir()}
    case.save(20, push=20)
    case.save(30)
    assert case.chunks == ["0-30", "30-50"]
    assert {path: path.stat().st_ino for path in inodes} == inodes
    saved = read_checkpoint(find_resumable(case.run_dir)[0])
    assert [(chunk.first, chunk.end) for chunk in saved.chunks] == [(0, 30), (30, 50)]


def test_a_chunk_goes_when_no_kept_checkpoint_names_it(make_run: MakeRun) -> None:
    case = make_run(capacity=50, keep=2)
    for opt_steps in (10, 20, 30):
        case.save(opt_steps, push=30)  # 0-30, 30-60, 60-90
    # Checkpoint 30 holds rows 40 to 90, checkpoint 20 holds 10 to 60.
    assert case.chunks == ["0-30", "30-60", "60-90"]
    case.save(40, push=5)  # the two newest, 30 and 40, hold 40 to 90 and 45 to 95
    assert case.chunks == ["30-60", "60-90", "90-95"]
    case.save(50, push=200)  # exceeds the capacity: only the newest 50 are written
    assert case.chunks == ["30-60", "60-90", "90-95", "245-295"]
    case.save(60)
    assert case.chunks == ["245-295"]


def test_without_the_replay_buffer_no_row_is_written(make_run: MakeRun) -> None:
    case = make_run(replay_buffer=False)
    case.save(10, push=30)
    assert not (case.folder / "replay").exists()
    saved = read_checkpoint(find_resumable(case.run_dir)[0])
    assert not saved.has_rows


def test_a_run_goes_on_from_its_newest_checkpoint_and_writes_only_new_rows(
    make_run: MakeRun,
) -> None:
    case = make_run(capacity=50)
    case.save(10, push=30)
    case.save(20, push=40)
    second = make_run(capacity=50)
    assert second.resume().opt_steps == 20
    assert second.numbers == list(range(20, 70))
    second.save(30, push=10)
    assert second.chunks == ["0-30", "30-70", "70-80"]
    last = make_run(capacity=50)
    last.resume()
    assert last.numbers == list(range(30, 80))


def test_rows_of_the_checkpoints_that_were_given_up_are_written_anew(make_run: MakeRun) -> None:
    case = make_run()
    case.save(10, push=30)
    case.save(20, push=40)  # skipped by the resume below, as if damaged
    second = make_run()
    second.resume(case.folder / "0000000010")
    second.save(20, push=40, n=2)
    assert second.chunks == ["0-30", "30-70"]  # step 20 and its rows were replaced
    assert second.weights("20") == "weights 2"
    third = make_run()
    third.save(30, push=5)  # without a resume, it writes its own rows from 0
    assert third.chunks == ["0-5", "0-30", "30-70"]
    saved = read_checkpoint(find_resumable(case.run_dir)[0])
    assert [(chunk.first, chunk.end) for chunk in saved.chunks] == [(0, 5)]


def test_a_resume_without_rows_begins_with_no_chunk(make_run: MakeRun) -> None:
    case = make_run(replay_buffer=False)
    case.save(10, push=30)
    second = make_run()
    second.resume()
    assert (len(second.buffer), second.buffer.ring.pushed) == (0, 30)
    second.save(20, push=8)
    assert second.chunks == ["30-38"]
    last = make_run()
    last.resume()
    assert last.numbers == list(range(30, 38))


def test_milestones_stay_for_good_without_their_rows(make_run: MakeRun) -> None:
    case = make_run(keep=1, milestone_interval=20)
    for opt_steps in (5, 15, 25, 35, 45, 60, 61):
        case.save(opt_steps, push=10)
    # The first checkpoint at or after 20, 40 and 60, and the newest one.
    assert steps_saved(case.run_dir) == [25, 45, 60, 61]
    newest_first = [read_checkpoint(folder) for folder in find_resumable(case.run_dir)]
    assert [checkpoint.has_rows for checkpoint in newest_first] == [True, False, False, False]
    assert case.chunks == [f"{first}-{first + 10}" for first in range(0, 70, 10)]
    case.push(100)
    case.save(62)
    assert steps_saved(case.run_dir) == [25, 45, 60, 62]
    assert case.chunks == ["70-170"]


def test_a_run_that_starts_again_in_its_folder_never_drops_what_it_just_saved(
    case: SmallRun, make_run: MakeRun
) -> None:
    for opt_steps in (10, 20, 30):
        case.save(opt_steps)
    restarted = make_run()
    for opt_steps, kept in ((5, [5, 20, 30]), (10, [5, 10, 30]), (15, [5, 10, 15])):
        restarted.save(opt_steps)
        assert steps_saved(case.run_dir) == kept
        assert restarted.weights("latest") == f"weights {opt_steps}"


def test_chunks_that_an_unreadable_manifest_may_list_are_not_deleted(make_run: MakeRun) -> None:
    case = make_run(keep=3, capacity=10)
    case.save(10, push=10)
    case.save(20, push=10)
    (case.folder / "0000000020" / "manifest.json").write_text("{")
    second = make_run(keep=3, capacity=10)
    second.resume(case.folder / "0000000010")
    second.save(30, push=10)
    assert steps_saved(case.run_dir) == [10, 20, 30]
    assert second.chunks == ["0-10", "10-20", "10-20"]
    second.save(40)  # of the four, the unreadable one is deleted first
    assert steps_saved(case.run_dir) == [10, 30, 40]
    assert second.chunks == ["0-10", "10-20"]


def test_a_milestone_with_an_unreadable_manifest_does_not_keep_chunks_for_good(
    make_run: MakeRun,
) -> None:
    case = make_run(keep=1, capacity=10, milestone_interval=20)
    case.save(20, push=10)
    (case.folder / "0000000020" / "manifest.json").write_text("{")
    for opt_steps in (25, 30, 35):
        case.save(opt_steps, push=10)
    assert steps_saved(case.run_dir) == [25, 35]
    assert case.chunks == ["30-40"]
