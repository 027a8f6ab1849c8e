"""How many samples an update needs."""

from __future__ import annotations

import math

import pytest

from border_cli.trainer.pacing import Pacing


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0, 16.0])
def test_an_update_needs_the_warm_up_and_its_share(ratio: float) -> None:
    pacing = Pacing(warmup_period=100, ratio=ratio, slack=20)
    assert pacing.needed(0) == 100
    assert pacing.needed(8) == 100 + 8 * ratio


def test_actors_may_be_ahead_by_the_slack() -> None:
    pacing = Pacing(warmup_period=100, ratio=4.0, slack=20)
    assert pacing.permitted(0) == 120
    assert pacing.permitted(10) == 160


def test_without_a_ratio_nobody_waits_after_the_warm_up() -> None:
    pacing = Pacing(warmup_period=100, ratio=None, slack=20)
    assert pacing.permitted(0) == math.inf
    assert pacing.needed(0) == pacing.needed(1_000_000) == 100


def test_a_limit_of_env_steps_is_never_passed() -> None:
    assert Pacing(warmup_period=5, ratio=1.0, slack=9, max_env_steps=10).permitted(100) == 10
    assert Pacing(warmup_period=5, ratio=None, slack=9, max_env_steps=10).permitted(0) == 10


def test_an_empty_buffer_is_never_sampled() -> None:
    assert Pacing(warmup_period=0, ratio=None, slack=1).needed(0) == 1
    assert Pacing(warmup_period=0, ratio=1.0, slack=1).needed(0) == 1
