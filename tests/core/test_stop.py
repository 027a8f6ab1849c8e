"""Stop requests, and heartbeats of parts."""

from __future__ import annotations

import signal
import threading

import pytest

from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.errors import Interrupted, Stalled


def test_a_flag_that_nobody_set_lets_the_run_go_on() -> None:
    stop = StopFlag()
    stop.check()
    assert (stop.requested, stop.noticed) == (False, False)


def test_the_first_reason_stays_and_is_raised_at_every_look() -> None:
    stop = StopFlag()
    stop.request(Interrupted(signal.SIGTERM))
    stop.request(Stalled("later"))
    assert (stop.requested, stop.noticed) == (True, False)
    for _ in range(2):
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            stop.check()
    assert stop.noticed


def test_a_wait_names_what_it_waits_for_and_counts_as_a_step_when_it_ends() -> None:
    heartbeat = Heartbeat("learner")
    with heartbeat.waiting("samples"):
        assert (heartbeat.waiting_for, heartbeat.beats) == ("samples", 0)
    assert (heartbeat.waiting_for, heartbeat.beats) == (None, 1)


def test_a_wait_ends_with_an_error_as_well() -> None:
    heartbeat = Heartbeat("learner")
    with pytest.raises(KeyError, match="mine"), heartbeat.waiting("samples"):
        raise KeyError("mine")
    assert heartbeat.waiting_for is None


def test_a_part_that_works_now_and_then_waits_for_its_turn_in_between() -> None:
    heartbeat = Heartbeat("evaluation", waiting_for="its turn")
    with heartbeat.working():
        assert heartbeat.waiting_for is None
        assert heartbeat.thread_id == threading.get_ident()
    assert heartbeat.waiting_for == "its turn"


class Watched(Heartbeat):
    """Records every pair (waiting_for, beats) that another thread could have read."""

    def __init__(self, waiting_for: str | None) -> None:
        self.seen: list[tuple[str | None, int]] = []
        super().__init__("part", waiting_for)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if "waiting_for" in self.__dict__:
            self.seen.append((self.waiting_for, self.beats))


@pytest.mark.parametrize("idle", [None, "its turn"])
def test_a_part_never_appears_to_work_without_a_beat_since_its_wait(
    idle: str | None,
) -> None:
    part = Watched(idle)
    with part.working() if idle else part.waiting("samples"):
        pass
    waited, beats_before = False, -1
    for waiting_for, beats in part.seen:
        if waiting_for is None:
            assert beats > beats_before, part.seen
        elif not waited:
            beats_before = beats
        waited = waiting_for is not None
