"""Time spent in sections of a thread, measured with a fake clock."""

from __future__ import annotations

import pytest

from border_cli.core.timing import LEARNER_SECTIONS, SharesSince, Timing, shares, sum_seconds
from tests.support.fakes import FakeClock


def spent_s(timing: Timing) -> dict[str, float]:
    return {name: seconds for name, seconds in timing.seconds().items() if seconds}


def test_every_second_belongs_to_the_section_that_was_entered_last() -> None:
    clock = FakeClock()
    timing = Timing(clock)
    for section, seconds in (("wait", 2.0), ("sample", 3.0), ("update", 5.0), ("wait", 7.0)):
        timing.enter(section)
        clock.time_s += seconds
    assert spent_s(timing) == {"wait": 9.0, "sample": 3.0, "update": 5.0}


def test_the_section_under_way_counts_up_to_now_and_reading_ends_nothing() -> None:
    clock = FakeClock()
    timing = Timing(clock)
    timing.enter("update")
    for now_s in (1.0, 4.0):
        clock.time_s = now_s
        assert spent_s(timing) == {"update": now_s}


def test_a_section_within_another_is_not_counted_twice() -> None:
    clock = FakeClock()
    timing = Timing(clock)
    with timing.section("evaluate"):
        clock.time_s += 1.0
        with timing.section("save"):
            clock.time_s += 10.0
        clock.time_s += 2.0
    clock.time_s += 0.5
    assert spent_s(timing) == {"evaluate": 3.0, "save": 10.0, "other": 0.5}


def test_a_section_ends_also_where_its_block_raises() -> None:
    clock = FakeClock()
    timing = Timing(clock)

    def fail_after(seconds: float) -> None:
        clock.time_s += seconds
        raise OSError("full")

    with pytest.raises(OSError, match="full"), timing.section("save"):
        fail_after(1.0)
    clock.time_s += 4.0
    assert spent_s(timing) == {"save": 1.0, "other": 4.0}


def test_the_sections_add_up_to_the_time_since_the_beginning() -> None:
    clock = FakeClock()
    clock.time_s = 100.0
    timing = Timing(clock)
    clock.time_s = 200.0  # time before `begin` does not count
    timing.begin()
    for count, section in enumerate(LEARNER_SECTIONS):
        with timing.section(section):
            clock.time_s += count
    assert sum(timing.seconds().values()) == clock.time_s - 200.0 == sum(range(10))


def test_the_clock_as_last_read_is_the_beginning_of_the_section_under_way() -> None:
    clock = FakeClock()
    timing = Timing(clock)
    clock.time_s = 3.0
    timing.enter("other")
    clock.time_s = 5.0
    assert timing.since_s == 3.0


def test_shares_add_up_to_one_and_no_time_has_none() -> None:
    assert shares({"wait": 3.0, "update": 1.0}) == {"wait": 0.75, "update": 0.25}
    assert shares({"wait": 0.0, "update": 0.0}) == {}
    assert shares({}) == {}


def test_shares_since_the_last_look_know_nothing_of_the_time_before() -> None:
    window = SharesSince()
    assert window.update({"wait": 4.0, "update": 0.0}) == {"wait": 1.0, "update": 0.0}
    assert window.update({"wait": 5.0, "update": 3.0}) == {"wait": 0.25, "update": 0.75}
    assert window.update({"wait": 5.0, "update": 3.0}) == {}


def test_an_estimate_that_shrank_is_no_negative_time() -> None:
    window = SharesSince()
    window.update({"act": 2.0, "env_step": 2.0})
    assert window.update({"act": 1.5, "env_step": 6.0}) == {"act": 0.0, "env_step": 1.0}


def test_the_seconds_of_several_actors_are_added_by_section() -> None:
    parts = [{"act": 1.0, "blocked": 2.0}, {}, {"act": 4.0, "send": 8.0}]
    assert sum_seconds(parts) == {"act": 5.0, "blocked": 2.0, "send": 8.0}
    assert sum_seconds([]) == {}
