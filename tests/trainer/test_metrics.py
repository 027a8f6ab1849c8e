"""Metrics of a window of updates."""

from __future__ import annotations

import pytest

from border_cli.actor_manager.actor import Message
from border_cli.core.interfaces import ActorStats
from border_cli.core.types import Episode
from border_cli.trainer.metrics import Counters, MetricsWindow
from border_cli.trainer.trainer import SHOW_EVERY_S
from tests.support.fakes import FakeClock
from tests.support.trainers import BuiltTrainer


def actor(actor_id: int, **seconds: float) -> ActorStats:
    return ActorStats(
        actor_id=actor_id,
        env_steps=0,
        samples=0,
        duration_s=1.0,
        restarts=0,
        lost_samples=0,
        seconds=seconds,
    )


def times(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith("time/")}


def test_times_are_shares_of_the_window_and_those_of_actors_are_of_all_actors() -> None:
    counters = Counters()
    window = MetricsWindow(counters)
    counters.opt_steps = 1
    first = [actor(0, act=1.0, blocked=1.0), actor(1, act=0.0, blocked=6.0)]
    assert times(window.close(4.0, first, {"wait": 1.0, "update": 3.0})) == {
        "time/wait": 0.25,
        "time/update": 0.75,
        "time/actor/act": 0.125,
        "time/actor/blocked": 0.875,
    }
    counters.opt_steps = 2
    second = [actor(0, act=4.0, blocked=1.0), actor(1, act=1.0, blocked=6.0)]
    assert times(window.close(8.0, second, {"wait": 5.0, "update": 3.0})) == {
        "time/wait": 1.0,
        "time/update": 0.0,
        "time/actor/act": 1.0,
        "time/actor/blocked": 0.0,
    }


@pytest.mark.parametrize("opt_steps", [0, 1])
def test_a_window_without_an_update_has_no_times_and_the_next_does_not_get_them(
    opt_steps: int,
) -> None:
    counters = Counters()
    window = MetricsWindow(counters)
    counters.opt_steps = opt_steps
    assert bool(times(window.close(1.0, [actor(0, act=1.0)], {"wait": 8.0}))) == bool(opt_steps)
    counters.opt_steps += 1
    metrics = window.close(2.0, [actor(0, act=1.0)], {"wait": 9.0, "update": 1.0})
    assert times(metrics) == {"time/wait": 0.5, "time/update": 0.5}


def test_weights_lag_by_the_updates_between_acting_and_arriving() -> None:
    counters = Counters()
    window = MetricsWindow(counters)
    for opt_steps, weights in ((4, 4), (9, 4), (12, 8)):
        counters.opt_steps = opt_steps
        message = Message(actor_id=0, opt_steps=weights, env_steps=1, parts=[], rows=0, episodes=())
        window.add_message(message.experience())
    assert window.close(1.0, [actor(0)], {})["async/weight_lag"] == 3.0


def test_a_row_has_the_spread_of_the_returns_and_lengths_of_its_window() -> None:
    window = MetricsWindow(Counters())
    episodes = (Episode(1.0, 2), Episode(3.0, 8))
    message = Message(actor_id=0, opt_steps=0, env_steps=9, parts=[], rows=0, episodes=episodes)
    window.add_message(message.experience())
    metrics = window.close(1.0, [], {})
    assert {name: value for name, value in metrics.items() if "episode/" in name} == {
        "episode/return": 2.0, "episode/return_std": 1.0,
        "episode/return_min": 1.0, "episode/return_max": 3.0,
        "episode/length": 5.0, "episode/length_std": 3.0,
        "episode/length_min": 2, "episode/length_max": 8,
    }  # fmt: skip


def test_progress_is_shown_again_after_a_while() -> None:
    clock = FakeClock()
    built = BuiltTrainer(clock=clock, warmup_period=1_000)
    for time_s, shown in ((8.0, 1), (8.1, 1), (8.0 + 2 * SHOW_EVERY_S, 2)):
        clock.time_s = time_s
        built.trainer.step()
        assert len(built.recorder.shown) == shown
