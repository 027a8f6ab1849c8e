"""The set of recorders of a run: failures, errors and positions."""

from __future__ import annotations

import errno
import logging
import signal
from collections.abc import Callable

import pytest

from border_cli.core.output import Progress, RecordStep
from border_cli.core.types import State
from border_cli.errors import Interrupted
from border_cli.trainer.recorder_set import RecorderSet
from tests.support.fakes import ListRecorder

STEP = RecordStep(opt_steps=10, env_steps=20, time_s=1.0)


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken() -> None:
    raise ZeroDivisionError("a mistake in a recorder")


class Fragile(ListRecorder):
    """Calls `fail` in every method, and counts how often it is closed."""

    def __init__(self, fail: Callable[[], None]) -> None:
        super().__init__(fail)
        self.closings = 0

    def show(self, progress: Progress) -> None:
        self._fail()
        super().show(progress)

    def close(self) -> None:
        self.closings += 1
        self._fail()


def progress() -> Progress:
    return Progress(step=STEP, phase="learning", samples_total=0, gauges={})


def test_a_row_reaches_every_recorder_although_the_first_cannot_write() -> None:
    other = ListRecorder()
    recording = RecorderSet([Fragile(full), other])
    recording.write(STEP, {"train/loss": 0.5}, final=True)
    recording.show(progress())
    recording.close()
    assert other.rows == [(STEP, {"train/loss": 0.5}, True)]
    assert len(other.shown) == 1
    assert other.closed
    assert recording.failures == 3


def test_a_failure_is_said_at_once_and_then_every_hundredth_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recording = RecorderSet([Fragile(full)])
    with caplog.at_level(logging.ERROR):
        for _ in range(200):
            recording.write(STEP, {})
    assert [record.getMessage() for record in caplog.records] == [
        "Fragile could not write ([Errno 28] No space left on device); training continues, "
        f"{count} failures so far"
        for count in (1, 100, 200)
    ]
    assert recording.failures == 200


def test_a_recorder_with_a_mistake_is_switched_off_and_still_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, other = Fragile(broken), ListRecorder()
    recording = RecorderSet([failing, other])
    for _ in range(3):
        recording.write(STEP, {"train/loss": 0.5})
    assert len(other.rows) == 3
    assert (recording.failures, recording.switched_off.keys()) == (1, {"Fragile"})
    assert recording.problem == (
        "Fragile is switched off: ZeroDivisionError: a mistake in a recorder"
    )
    [record] = caplog.records
    assert record.exc_info is not None  # logged with a traceback
    recording.close()
    assert (failing.closings, other.closed) == (1, True)


def test_a_recorder_without_a_position_does_not_hide_those_of_the_others() -> None:
    class Lost(ListRecorder):
        def position(self) -> State:
            raise KeyError("offset")

    class Known(ListRecorder):
        def position(self) -> State:
            return {"size": 7}

    assert RecorderSet([Lost(), Known()]).positions() == {"Known": {"size": 7}}


def test_an_error_of_ours_in_a_recorder_ends_the_run() -> None:
    def stop() -> None:
        raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted, match="SIGINT"):
        RecorderSet([Fragile(stop)]).write(STEP, {})
