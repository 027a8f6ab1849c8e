"""Writing happens beside the learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fakes import FakeClock
from saves import SmallRun, counters, evaluation_of

from border_cli.run.finding import steps_saved

MakeRun = Callable[..., SmallRun]


class SlowDisk:
    """Begins to write when told, and tells when it has begun."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.threads: set[str] = set()

    def __call__(self, state: Mapping[str, Any], path: Path) -> None:
        self.threads.add(threading.current_thread().name)
        self.begun.set()
        assert self.go_on.wait(20)
        path.write_text(f"weights {state['n']}")


def test_a_checkpoint_that_falls_due_while_one_is_written_is_left_out_and_counted(
    make_run: MakeRun,
) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk)
    case.push(10)
    assert case.store.save(case.state(10))
    assert disk.begun.wait(20)
    assert case.store.busy
    assert not case.store.wait(0)
    assert not case.store.save(case.state(20))
    assert case.store.report.skipped == 1
    disk.go_on.set()
    assert case.store.wait(20)
    assert not case.store.busy
    assert steps_saved(case.run_dir) == [10]
    assert case.save(30)
    assert disk.threads == {"checkpoints"}
    report = case.store.report
    assert (report.opt_steps, report.written, report.skipped, report.failures) == (30, 2, 1, 0)


def test_the_rows_are_those_of_the_moment_whatever_is_pushed_meanwhile(make_run: MakeRun) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk, capacity=20)
    # The best model is being written, so the rows are not even begun.
    case.store.save_best({"n": 1}, counters(10), evaluation_of(1.0))
    assert disk.begun.wait(20)
    case.push(30)
    assert case.store.save(case.state(10))
    case.push(15)
    case.push(40)
    disk.go_on.set()
    assert case.store.wait(20)
    again = make_run(capacity=20)
    again.resume()
    assert again.numbers == list(range(10, 30))
    assert case.save(20)
    last = make_run(capacity=20)
    last.resume()
    assert last.numbers == list(range(65, 85))


def test_of_best_models_that_wait_only_the_newest_is_written(make_run: MakeRun) -> None:
    disk = SlowDisk()
    case = make_run(save_state=disk)
    for opt_steps in (10, 20, 30):
        case.store.save_best({"n": opt_steps}, counters(opt_steps), evaluation_of(1.0))
        assert disk.begun.wait(20)
    assert not case.store.busy  # a best model holds up no checkpoint
    disk.go_on.set()
    assert case.store.wait(20)
    assert case.there == ["best-0000000010", "best-0000000030"]
    assert case.weights("best") == "weights 30"


def test_close_writes_what_was_handed_over_and_ends_the_thread(make_run: MakeRun) -> None:
    case = make_run()
    assert case.store.save(case.state(10))
    case.store.close()
    case.store.close()
    assert steps_saved(case.run_dir) == [10]
    assert "checkpoints" not in {each.name for each in threading.enumerate()}
    assert not case.store.save(case.state(20))
    assert steps_saved(case.run_dir) == [10]


def test_a_run_that_never_saves_has_no_thread_and_no_folder(make_run: MakeRun) -> None:
    case = make_run()
    assert case.store.wait(0)
    assert not case.store.busy
    case.store.close()
    assert not case.folder.exists()


def test_the_report_tells_time_and_bytes(make_run: MakeRun) -> None:
    clock = FakeClock()

    def slow(state: Mapping[str, Any], path: Path) -> None:
        clock.time_s += 3.0
        path.write_text(f"weights {state['n']}")

    case = make_run(save_state=slow, clock=clock)
    case.save(10, push=100)
    case.save_best(10, 1.0)
    report = case.store.report
    assert (report.seconds, report.written) == (6.0, 1)
    files = [
        each for each in case.folder.rglob("*") if each.is_file() and "latest" not in str(each)
    ]
    header = 256  # of the chunk, at most
    total = sum(each.stat().st_size for each in files)
    assert total - header <= report.nbytes <= total
