"""The log of updates: late reads of device values, checks and means."""

from __future__ import annotations

import math

import pytest

from border_cli.errors import NotFinite
from border_cli.trainer.metrics import CHECK_EVERY, UpdateLog


class Late:
    """A number on a device, with a count of reads."""

    reads = 0

    def __init__(self, value: float) -> None:
        self._value = value

    def __float__(self) -> float:
        Late.reads += 1
        return self._value


def test_means_are_those_since_the_last_call() -> None:
    log = UpdateLog()
    log.add(1, {"loss": 1.0, "q_mean": 3.0})
    log.add(2, {"loss": 2.0, "q_mean": 5.0})
    assert log.means() == {"train/loss": 1.5, "train/q_mean": 4.0}
    log.add(3, {"loss": 9.0})
    assert log.means() == {"train/loss": 9.0}
    assert log.means() == {}


def test_nothing_is_read_before_it_is_needed() -> None:
    log, before = UpdateLog(), Late.reads
    for step in range(1, CHECK_EVERY):
        log.add(step, {"loss": Late(1.0)})
    assert Late.reads == before
    log.add(CHECK_EVERY, {"loss": Late(1.0)})
    assert Late.reads == before + CHECK_EVERY
    log.check()
    assert Late.reads == before + CHECK_EVERY
    assert log.means() == {"train/loss": 1.0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_bad_quantity_is_named_with_its_own_step(bad: float) -> None:
    log = UpdateLog()
    log.add(1_233, {"loss": 1.0, "grad_norm": 1.0})
    log.add(1_234, {"loss": 1.0, "grad_norm": bad})
    log.add(1_235, {"loss": bad, "grad_norm": bad})
    with pytest.raises(NotFinite, match=rf"^train/grad_norm is {bad} at update 1,234;"):
        log.check()


def test_means_since_the_last_row_continue_after_a_resume() -> None:
    log, resumed = UpdateLog(), UpdateLog()
    log.add(1, {"loss": 0.1})
    log.add(2, {"loss": 0.2})
    resumed.load_state_dict(log.state_dict())
    for update_log in (log, resumed):
        update_log.add(3, {"loss": 0.4})
    assert resumed.means() == log.means()
