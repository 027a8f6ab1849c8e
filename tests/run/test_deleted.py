"""What somebody else deletes during a run is in its next checkpoint again."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import FakeClock
from saves import SmallRun

from border_cli.run.checkpoint import REFRESH_EVERY_S
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import best_score, resumable
from border_cli.run.status import RunInUse, RunLock

MakeRun = Callable[..., SmallRun]


def loaded(make_run: MakeRun, run_dir: Path, **settings: int) -> SmallRun:
    """Another process that goes on with the run."""
    again = make_run(run_dir, **settings)
    again.resume()
    return again


def delete(run_dir: Path, what: str) -> None:
    for path in sorted(run_dir.glob(what)):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize(
    "what",
    [
        "checkpoints/replay",
        "checkpoints",
        "checkpoints/replay/rows-0000000000-*",
        "checkpoints/replay/rows-0000000030-*",
        "checkpoints/replay/*",
    ],
)
@pytest.mark.parametrize("images", [False, True])
def test_rows_that_were_deleted_are_written_again(
    make_run: MakeRun, what: str, images: bool, caplog: pytest.LogCaptureFixture
) -> None:
    case = make_run(images=images)
    case.save(10, push=30)
    case.save(20, push=20)
    delete(case.run_dir, what)
    with caplog.at_level(logging.WARNING):
        assert case.save(30, push=10)
        assert case.save(40, push=10)
    assert caplog.text.count("files of the replay buffer were missing") == 1
    again = loaded(make_run, case.run_dir, images=images)
    assert again.numbers == list(range(70))


def test_only_rows_from_the_first_that_is_gone_on_are_written_again(case: SmallRun) -> None:
    for opt_steps in (10, 20, 30):
        case.save(opt_steps, push=20)
    first = next((case.folder / "replay").glob("rows-0000000000-*")).stat().st_ino
    delete(case.run_dir, "checkpoints/replay/rows-0000000020-*")
    case.save(40, push=5)
    saved = read_checkpoint(resumable(case.run_dir)[0])
    assert [(each.first, each.end) for each in saved.chunks] == [(0, 20), (20, 65)]
    assert next((case.folder / "replay").glob("rows-0000000000-*")).stat().st_ino == first


@pytest.mark.parametrize("pushed", [45, 70, 200])
def test_of_a_chunk_that_is_gone_the_rows_are_saved_that_the_buffer_still_holds(
    make_run: MakeRun, pushed: int
) -> None:
    """Some, or all, of its rows were overwritten by then."""
    case = make_run(capacity=50)
    case.save(10, push=30)
    case.save(20, push=10)
    delete(case.run_dir, "checkpoints/replay")
    case.save(30, push=pushed)
    again = loaded(make_run, case.run_dir, capacity=50)
    assert again.numbers == list(range(40 + pushed - 50, 40 + pushed))
    again.save(40, push=7)
    assert loaded(make_run, case.run_dir, capacity=50).numbers[-1] == 46 + pushed


def test_rows_that_go_while_a_checkpoint_is_written_fail_it_and_the_next_has_them(
    make_run: MakeRun, tmp_path: Path
) -> None:
    make_run().save(10, push=30)
    chunks = tmp_path / "checkpoints" / "replay"
    # `hold` is what the writing thread calls first, when the learner has looked already.
    late = make_run(
        reacquire=lambda: shutil.rmtree(chunks) if len(list(chunks.iterdir())) == 1 else None
    )
    late.resume()
    assert not late.save(20, push=5)
    assert "lost files during the save" in str(late.store.report.problem)
    assert late.save(30, push=5)
    assert loaded(make_run, tmp_path).numbers == list(range(40))


@pytest.mark.parametrize(
    "what", ["checkpoints", "checkpoints/best-*", "checkpoints/best-*/agent.pt", "best"]
)
@pytest.mark.parametrize("resumed", [False, True])
def test_the_best_model_is_written_again_to_the_byte(
    make_run: MakeRun, what: str, resumed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    case = make_run()
    case.save_best(10, 1.5)
    case.save(10, push=5)
    before = {each.name: each.read_bytes() for each in (case.run_dir / "best").iterdir()}
    if resumed:
        case = loaded(make_run, case.run_dir)
        case.save(20)  # from here on this process knows it
    delete(case.run_dir, what)
    case.save(30)
    assert {each.name: each.read_bytes() for each in (case.run_dir / "best").iterdir()} == before
    assert best_score(case.run_dir) == (1.5, 10)
    case.save(40)
    assert caplog.text.count("the best model, best-0000000010, was missing") == 1


def test_the_settings_are_written_again(make_run: MakeRun) -> None:
    case = make_run(settings="seed: 1\n")
    case.save(10)
    assert (case.run_dir / ".hydra" / "resolved.yaml").read_text() == "seed: 1\n"
    delete(case.run_dir, ".hydra")
    assert not case.store.is_intact()
    case.save(20)
    assert (case.run_dir / ".hydra" / "resolved.yaml").read_text() == "seed: 1\n"


def test_a_checkpoint_stands_until_something_of_it_is_gone(make_run: MakeRun) -> None:
    case = make_run()
    assert case.store.is_intact()
    case.save_best(10, 1.0)
    for what in ("best", "checkpoints/0000*/state.json", "checkpoints/replay", "checkpoints"):
        case.save(10, push=3)
        assert case.store.is_intact(), what
        delete(case.run_dir, what)
        assert not case.store.is_intact(), what


@pytest.fixture
def held(tmp_path: Path) -> Iterator[RunLock]:
    with RunLock(tmp_path / "run") as lock:
        yield lock


def test_a_run_directory_that_vanished_is_made_again_whole_and_locked(
    make_run: MakeRun, tmp_path: Path, held: RunLock, caplog: pytest.LogCaptureFixture
) -> None:
    run_dir = tmp_path / "run"
    case = make_run(run_dir, settings="seed: 1\n", reacquire=held.reacquire)
    case.save_best(10, 1.5)
    case.save(10, push=30)
    shutil.rmtree(run_dir)
    assert case.save(20, push=10)
    assert caplog.text.count(f"{run_dir} was deleted or moved; creating it again") == 1
    with pytest.raises(RunInUse, match=f"in use by process {os.getpid()}"), RunLock(run_dir):
        pass
    assert case.weights("latest") == "weights 20"
    assert case.weights("best") == "weights 10"
    assert (run_dir / ".hydra" / "resolved.yaml").is_file()
    assert loaded(make_run, run_dir).numbers == list(range(40))


def test_a_directory_behind_a_link_is_made_again_where_that_leads(tmp_path: Path) -> None:
    disk = tmp_path / "scratch" / "run"
    disk.mkdir(parents=True)
    (tmp_path / "link").symlink_to(disk)
    with RunLock(tmp_path / "link") as lock:
        shutil.rmtree(tmp_path / "scratch")
        lock.reacquire()
        assert (disk / "run.lock").is_file()


def test_where_another_process_has_begun_since_nothing_of_it_is_touched(
    make_run: MakeRun, tmp_path: Path, held: RunLock
) -> None:
    run_dir = tmp_path / "run"
    case = make_run(run_dir, reacquire=held.reacquire)
    case.save(10, push=30)
    shutil.rmtree(run_dir)
    with RunLock(run_dir):
        assert not case.save(20)
        assert "is in use by process" in str(case.store.report.problem)
        assert [each.name for each in run_dir.iterdir()] == ["run.lock"]
    assert case.save(30)


def test_a_lock_that_stands_is_not_taken_anew(held: RunLock, tmp_path: Path) -> None:
    before = (tmp_path / "run" / "run.lock").stat()
    held.reacquire()
    assert (tmp_path / "run" / "run.lock").stat() == before


def test_files_that_the_run_relies_on_look_new_and_those_of_others_keep_their_times(
    make_run: MakeRun,
) -> None:
    clock = FakeClock()
    case = make_run(keep=2, milestone_interval=10, clock=clock, settings="seed: 1\n")
    for opt_steps in (10, 20):
        case.save_best(opt_steps, float(opt_steps))
        case.save(opt_steps, push=3)
    ours = [".hydra/hydra.yaml", ".hydra/resume-1/config.yaml", "metrics.jsonl"]
    ours += ["events.out.tfevents.1.host.1.0.border"]
    others = ["notes.txt", "tensorboard/notes.txt", "checkpoints/replay/notes.txt"]
    for name in (*ours, *others):
        (case.run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (case.run_dir / name).touch()
    files = {each for each in case.run_dir.rglob("*") if each.is_file() and not each.is_symlink()}
    for each in files:
        os.utime(each, (1.0, 1.0))
    case.save(30)
    assert (case.run_dir / "best" / "agent.pt").stat().st_mtime == 1.0  # not yet
    clock.time_s += REFRESH_EVERY_S
    case.save(40)
    old = {each for each in files if each.exists() and each.stat().st_mtime == 1.0}
    assert old == {case.run_dir / each for each in others}
