"""The budget of restarts, and the pauses between them."""

from __future__ import annotations

import pytest

from border_cli.actor_manager.restarts import Restarts
from border_cli.core.errors import ActorCrashed


def test_the_pause_doubles_to_five_seconds_and_a_delivery_makes_it_short_again() -> None:
    restarts = Restarts(0, 100)
    assert [restarts.failed("boom") for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    restarts.delivered()
    assert [restarts.failed("boom") for _ in range(2)] == [0.1, 0.2]


def test_a_thousand_failures_in_a_row_still_pause_five_seconds() -> None:
    restarts = Restarts(0, 5_000)
    assert {restarts.failed("boom") for _ in range(2_000)} >= {0.1, 5.0}
    assert restarts.failed("boom") == 5.0


def test_past_the_budget_the_first_traceback_is_raised() -> None:
    restarts = Restarts(4, 2)
    restarts.failed("the first")
    restarts.failed("the second")
    with pytest.raises(ActorCrashed, match=r"(?s)actor 4 .*the first"):
        restarts.failed("the third")
    assert restarts.made == 2


def test_restarts_before_a_resume_are_counted_and_cost_nothing() -> None:
    restarts = Restarts(0, 1, before=3)
    assert (restarts.made, restarts.total) == (0, 3)
    assert restarts.failed("once") == 0.1
    assert (restarts.made, restarts.total) == (1, 4)
    with pytest.raises(ActorCrashed, match="once"):
        restarts.failed("twice")
