"""Checks of arriving transitions: numbers that are not finite, and bounds of observations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from border_cli.core.returns import Moments
from border_cli.core.spaces import DictSpace, DiscreteSpace, Space
from border_cli.core.types import Array, Experience, Transitions
from border_cli.errors import NotFinite
from border_cli.trainer.intake import Intake
from border_cli.trainer.metrics import Counters, MetricsWindow
from tests.support.fakes import FakeAgent, ListBuffer
from tests.support.spaces import box, reals

Log = pytest.LogCaptureFixture
INF = np.inf


HALF_BOUNDED = box((2,), low=[-1, -INF], high=[1, INF])
NAMED = DictSpace({"room": DiscreteSpace(4), "place": HALF_BOUNDED, "free": reals(1)})


class Watching(FakeAgent):
    """Records the returns it observes."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[Moments] = []

    def observe_returns(self, returns: Moments) -> None:
        self.returns.append(returns)


class IntakeCase:
    """An intake that receives messages of actor 3, with its counters, buffer and agent."""

    def __init__(self, space: Space) -> None:
        self.counters = Counters()
        self.buffer = ListBuffer()
        self.agent = Watching()
        self._intake = Intake(
            self.agent,
            self.buffer,
            counters=self.counters,
            window=MetricsWindow(self.counters),
            observation=space,
        )

    def take(
        self,
        obs: Array,
        next_obs: Array,
        rows: int,
        *,
        returns: tuple[Moments, ...] = (),
        **columns: Any,
    ) -> None:
        self.take_all(message(obs, next_obs, rows, returns=returns, **columns))

    def take_all(self, *messages: Experience) -> None:
        self._intake.take([*messages])


def message(
    obs: Array,
    next_obs: Array,
    rows: int,
    *,
    actor_id: int = 3,
    returns: tuple[Moments, ...] = (),
    **columns: Any,
) -> Experience:
    plain = {
        "action": np.zeros(rows, np.int64),
        "reward": np.zeros(rows, np.float32),
        "discount": np.ones(rows, np.float32),
    }
    return Experience(
        actor_id=actor_id,
        opt_steps=0,
        env_steps=rows,
        transitions=Transitions(obs=obs, next_obs=next_obs, **plain | columns),
        episodes=(),
        returns=returns,
    )


def real(*rows: list[float]) -> Any:
    return np.array(rows, np.float32)


def named(*places: list[float]) -> dict[str, Any]:
    return {
        "room": np.full(len(places), 9),  # the environment checks this range
        "place": real(*places),
        "free": np.full((len(places), 1), 1e30, np.float32),
    }


def test_samples_beyond_the_bounds_are_counted_and_the_first_is_said(caplog: Log) -> None:
    case = IntakeCase(HALF_BOUNDED)
    inside = [1.0, -3e38]
    case.take(real(inside, inside), real(inside, [-1, 3e38]), 2)
    assert (case.counters.out_of_bounds, caplog.messages) == (0, [])
    case.take(real(inside, [2, 0], [3, 0]), real([2, 0], [3, 0], inside), 3)
    case.take(real([-4, 0]), real([-4, 0]), 1)
    assert case.counters.out_of_bounds == 4
    assert caplog.messages == [
        "observation of actor 3 is outside the bounds of its space: 2.0 at [0] "
        "(allowed: -1.0 to 1.0). Such samples are still used; out_of_bounds in run.json counts them"
    ]
    assert sum(len(rows) for rows in case.buffer.pushed) == 6


def test_a_part_of_a_dict_that_is_beyond_its_bounds_is_named(caplog: Log) -> None:
    case = IntakeCase(NAMED)
    case.take(named([0, 0]), named([0, 0]), 1)
    case.take(named([0, 0], [0, 0]), named([0, 0], [-1.5, 0]), 2)
    assert case.counters.out_of_bounds == 1
    [message] = caplog.messages
    assert message.startswith(
        "next observation 'place' of actor 3 is outside the bounds of its space:"
        " -1.5 at [0] (allowed: -1.0 to 1.0)."
    )


def test_small_messages_are_pushed_at_once_unless_the_agent_observes_each() -> None:
    first, second = (
        message(real(*rows), real(*rows), 2) for rows in ([[0, 1], [0, 2]], [[1, 3]] * 2)
    )
    case = IntakeCase(HALF_BOUNDED)
    case.agent.observes = False
    case.take_all(first, second)
    [pushed] = case.buffer.pushed
    np.testing.assert_array_equal(pushed.obs, real([0, 1], [0, 2], [1, 3], [1, 3]))
    assert (case.counters.samples_total, case.counters.env_steps) == (4, 4)
    case = IntakeCase(HALF_BOUNDED)
    case.take_all(first, second)
    assert [len(rows) for rows in case.buffer.pushed] == [2, 2]


def test_a_bad_message_among_small_ones_is_refused_with_its_actor() -> None:
    good, bad = (message(real(row), real([0, 0]), 1) for row in ([0, 0], [0, np.nan]))
    case = IntakeCase(HALF_BOUNDED)
    case.agent.observes = False
    with pytest.raises(NotFinite, match=r"^observation of actor 7 .*not finite"):
        case.take_all(good, replace(bad, actor_id=7))
    assert [rows.obs.tolist() for rows in case.buffer.pushed] == [[[0, 0]]]


def test_the_first_of_several_small_messages_beyond_the_bounds_is_said(caplog: Log) -> None:
    inside, outside = (message(real(row), real(row), 1) for row in ([0, 0], [5, 0]))
    case = IntakeCase(HALF_BOUNDED)
    case.agent.observes = False
    case.take_all(inside, replace(outside, actor_id=1), outside)
    assert (case.counters.out_of_bounds, case.counters.samples_total) == (2, 3)
    assert [text.partition(" is ")[0] for text in caplog.messages] == ["observation of actor 1"]


@pytest.mark.parametrize("bad", [np.nan, INF, -INF])
@pytest.mark.parametrize("place", [0, 1])  # an entry with bounds, one without
def test_what_is_not_finite_is_refused_and_not_counted_as_beyond(
    place: int, bad: float, caplog: Log
) -> None:
    case = IntakeCase(NAMED)
    wrong = [0.0, 0.0]
    wrong[place] = bad
    with pytest.raises(NotFinite, match=r"^next observation of actor 3 .*not finite"):
        case.take(named([5, 0], [0, 0]), named([0, 0], wrong), 2)
    assert (case.buffer.pushed, case.counters.out_of_bounds, caplog.messages) == ([], 0, [])


@pytest.mark.parametrize("column", ["reward", "action"])
def test_rewards_and_actions_that_are_not_finite_are_refused(column: str) -> None:
    case = IntakeCase(HALF_BOUNDED)
    wrong = np.array([0, np.nan], np.float32)
    with pytest.raises(NotFinite, match=f"^{column} of actor 3 .*not finite"):
        case.take(real([0, 0], [0, 0]), real([0, 0], [0, 0]), 2, **{column: wrong})


def test_pixels_are_not_looked_at() -> None:
    case = IntakeCase(box((2, 2), "uint8", high=100))
    pixels = np.full((1, 2, 2), 200, np.uint8)
    case.take(pixels, pixels, 1)
    assert case.counters.out_of_bounds == 0


def test_the_returns_of_a_message_are_observed_also_where_it_has_no_rows() -> None:
    """Returns include env steps whose rows still wait in an n-step window."""
    case = IntakeCase(HALF_BOUNDED)
    first, second, third = (Moments(n, 0.5, 2.0) for n in (1, 2, 3))
    case.take(real(), real(), 0, returns=(first,))
    case.take(real([0, 0]), real([0, 0]), 1, returns=(second, third))
    case.take(real([0, 0]), real([0, 0]), 1)
    assert case.agent.returns == [first, second, third]


def test_a_reward_that_is_not_finite_is_refused_before_its_row_has_come() -> None:
    case = IntakeCase(HALF_BOUNDED)
    case.take(real([0, 0], [0, 0]), real([0, 0], [0, 0]), 2)
    with pytest.raises(NotFinite, match=r"^reward of actor 3 .* is not finite"):
        case.take(real(), real(), 0, returns=(Moments(1, np.inf, np.nan),))
    assert case.agent.returns == []
