"""The replay ratio: samples needed by updates, and samples permitted to actors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from border_cli.trainer.online import ReplayRatio


@pytest.mark.parametrize("ratio", [0.25, 1.0, 4.0, 16.0])
def test_an_update_needs_the_warm_up_and_its_share(ratio: float) -> None:
    replay_ratio = ReplayRatio(warmup_period=100, samples_per_opt_step=ratio, slack=20)
    assert replay_ratio.needed(0) == 100
    assert replay_ratio.needed(8) == 100 + 8 * ratio


def test_actors_may_be_ahead_by_the_slack() -> None:
    replay_ratio = ReplayRatio(warmup_period=100, samples_per_opt_step=4.0, slack=20)
    assert replay_ratio.permitted(0) == 120
    assert replay_ratio.permitted(10) == 160


def test_without_a_ratio_nobody_waits_after_the_warm_up() -> None:
    replay_ratio = ReplayRatio(warmup_period=100, samples_per_opt_step=None, slack=20)
    assert replay_ratio.permitted(0) == math.inf
    assert replay_ratio.needed(0) == replay_ratio.needed(1_000_000) == 100


def test_a_limit_of_env_steps_is_never_passed() -> None:
    limited = ReplayRatio(warmup_period=5, samples_per_opt_step=1.0, slack=9, max_env_steps=10)
    assert limited.permitted(100) == 10
    assert replace(limited, samples_per_opt_step=None).permitted(0) == 10


def test_an_empty_buffer_is_never_sampled() -> None:
    assert ReplayRatio(warmup_period=0, samples_per_opt_step=None, slack=1).needed(0) == 1
    assert ReplayRatio(warmup_period=0, samples_per_opt_step=1.0, slack=1).needed(0) == 1
