"""How many samples an update needs."""

from __future__ import annotations

import math

import pytest

from border_cli.trainer.pacing import Pacing


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0, 16.0])
def test_an_update_needs_the_warm_up_and_its_share(ratio: float) -> None:
    pacing = Pacing(warmup_period=100, ratio=ratio, slack=20)
    assert not pacing.may_update(99, 0)
    assert pacing.may_update(100, 0)
    needed = 100 + 8 * ratio
    assert pacing.may_update(math.ceil(needed), 8)
    assert not pacing.may_update(math.ceil(needed) - 1, 8)


def test_actors_may_be_ahead_by_the_slack() -> None:
    pacing = Pacing(warmup_period=100, ratio=4.0, slack=20)
    assert pacing.permitted(0) == 120
    assert pacing.permitted(10) == 160


def test_without_a_ratio_nobody_waits_after_the_warm_up() -> None:
    pacing = Pacing(warmup_period=100, ratio=None, slack=20)
    assert pacing.permitted(0) == math.inf
    assert not pacing.may_update(99, 0)
    assert pacing.may_update(100, 1_000_000)


def test_a_limit_of_env_steps_is_never_passed() -> None:
    assert Pacing(warmup_period=5, ratio=1.0, slack=9, max_env_steps=10).permitted(100) == 10
    assert Pacing(warmup_period=5, ratio=None, slack=9, max_env_steps=10).permitted(0) == 10


def test_an_empty_buffer_is_never_sampled() -> None:
    assert not Pacing(warmup_period=0, ratio=None, slack=1).may_update(0, 0)
    assert not Pacing(warmup_period=0, ratio=1.0, slack=1).may_update(0, 0)
