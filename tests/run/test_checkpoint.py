"""Checkpoints are either complete or absent, and are written while the learner continues."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from border_cli.run.finding import find_resumable, steps_saved
from border_cli.run.layout import partial_of
from tests.support.small_run import SmallRun, counters, evaluation_of

MakeRun = Callable[..., SmallRun]


def test_the_newest_are_kept_and_latest_points_at_the_last_right_after_each_save(
    case: SmallRun,
) -> None:
    for opt_steps in (5, 10, 15, 20, 100_000):
        case.save(opt_steps)
        assert str((case.folder / "latest").readlink()) == f"{opt_steps:010d}"
        assert case.weights("latest") == f"weights {opt_steps}"
    assert case.there == ["0000000015", "0000000020", "0000100000", "latest"]
    assert steps_saved(case.run_dir) == [15, 20, 100_000]


def test_the_best_is_replaced_and_linked_right_after_each_save(case: SmallRun) -> None:
    for opt_steps, score in ((10, 1.0), (20, 2.0), (30, 3.0)):
        case.save_best(opt_steps, score)
        link = case.run_dir / "best"
        assert str(link.readlink()) == f"checkpoints/best-{opt_steps:010d}"
        document = json.loads((link / "score.json").read_text())
        assert (document["score"], document["opt_steps"]) == (score, opt_steps)
        assert document["returns"] == [score]
        assert json.loads((link / "state.json").read_text()) == counters(opt_steps)
        assert case.weights("best") == f"weights {opt_steps}"


def test_a_full_disk_leaves_the_best_model_and_the_new_one_comes_later(case: SmallRun) -> None:
    case.save_best(10, 1.0)
    case.disk.full = True
    case.save_best(20, 2.0)
    assert case.weights("best") == "weights 10"
    assert case.there == ["best-0000000010"]
    assert case.store.report.failures == 1
    case.disk.full = False
    case.save(30)
    assert case.weights("best") == "weights 20"


def test_what_no_checkpoint_can_hold_is_a_failure_with_its_reason(
    case: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert not case.save(10, thing=object())
    assert "a checkpoint cannot store a object" in str(case.store.report.problem)
    assert "Traceback" in caplog.text  # a bug, unlike a full disk
    assert case.there == []
    assert case.save(20)


def test_a_step_that_was_being_replaced_when_the_process_was_killed_is_found(
    case: SmallRun, make_run: MakeRun
) -> None:
    case.save(10, n=1, push=30)
    checkpoint = case.folder / "0000000010"
    checkpoint.rename(partial_of(checkpoint))  # the new one is complete, the old one partly removed
    checkpoint.mkdir()
    (checkpoint / "agent.npz").write_text("weights 0")
    assert case.weights("10") == "weights 1"
    assert case.weights("latest") == "weights 1"
    assert find_resumable(case.run_dir) == [partial_of(checkpoint)]
    second = make_run()
    second.resume()
    assert second.numbers == list(range(30))
    second.save(20, push=1)
    assert second.there == ["0000000010", "0000000020", "latest"]
    assert second.chunks == ["0-30", "30-31"]


def test_the_first_save_puts_in_order_what_a_killed_process_left(
    case: SmallRun, make_run: MakeRun
) -> None:
    case.save(10, n=1, push=5)
    partial = partial_of(case.folder / "0000000020")
    partial.mkdir()
    (partial / "agent.npz").write_text("half")
    chunk = "rows-0000000005-0000000009-aaaaaaaa.npy"
    for name in (f".{chunk}.12345678.tmp", chunk):
        (case.folder / "replay" / name).write_text("half")
    second = make_run()
    second.resume()
    second.save(30)
    assert second.there == ["0000000010", "0000000030", "latest"]
    assert second.weights("10") == "weights 1"
    assert second.chunks == ["0-5"]


def test_records_are_synced_before_the_manifest(
    case: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def record_sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    (case.run_dir / "metrics.jsonl").write_text("{}")
    positions = {"Jsonl": {"file": "metrics.jsonl", "size": 2}, "Mine": {"rows": 3}}
    assert case.save(10, recorders=positions)
    files = case.run_dir / "metrics.jsonl", case.folder / "0000000010" / "manifest.json"
    records, manifest = (path.stat().st_ino for path in files)
    assert synced.index(records) < synced.index(manifest)


class SlowDisk:
    """Signals that a write has started, then blocks until the test releases it."""

    def __init__(self) -> None:
        self.started, self.released = threading.Event(), threading.Event()
        self.threads: set[str] = set()

    def __call__(self, state: Mapping[str, Any], path: Path) -> None:
        self.threads.add(threading.current_thread().name)
        self.started.set()
        assert self.released.wait(20)
        path.write_text(f"weights {state['n']}")


def test_a_checkpoint_that_falls_due_while_one_is_written_is_left_out(
    make_run: MakeRun,
) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk)
    case.push(10)
    assert case.store.save(case.state(10))
    assert disk.started.wait(20)
    assert case.store.busy
    assert not case.store.wait(0)
    assert not case.store.save(case.state(20))
    disk.released.set()
    assert case.store.wait(20)
    assert not case.store.busy
    assert steps_saved(case.run_dir) == [10]
    assert case.save(30)
    assert disk.threads == {"checkpoints"}
    report = case.store.report
    assert (report.written, report.failures) == (2, 0)


def test_rows_pushed_during_a_save_are_not_in_the_checkpoint(make_run: MakeRun) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk, capacity=20)
    # The best model is still being written, so no rows have been written yet.
    case.store.save_best({"n": 1}, counters(10), evaluation_of(1.0))
    assert disk.started.wait(20)
    case.push(30)
    assert case.store.save(case.state(10))
    case.push(15)
    case.push(40)
    disk.released.set()
    assert case.store.wait(20)
    second = make_run(capacity=20)
    second.resume()
    assert second.numbers == list(range(10, 30))
    assert case.save(20)
    last = make_run(capacity=20)
    last.resume()
    assert last.numbers == list(range(65, 85))


def test_a_best_model_that_is_being_written_holds_up_no_checkpoint(make_run: MakeRun) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk)
    for opt_steps in (10, 20, 30):
        case.store.save_best({"n": opt_steps}, counters(opt_steps), evaluation_of(1.0))
        assert disk.started.wait(20)
    assert not case.store.busy
    disk.released.set()
    assert case.store.wait(20)
    assert case.there == ["best-0000000030"]
    assert case.weights("best") == "weights 30"


def test_close_writes_what_was_handed_over_and_ends_the_thread(make_run: MakeRun) -> None:
    case = make_run()
    assert case.store.save(case.state(10))
    case.store.close()
    case.store.close()
    assert steps_saved(case.run_dir) == [10]
    assert "checkpoints" not in {thread.name for thread in threading.enumerate()}
