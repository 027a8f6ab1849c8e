"""Recorded episodes as steps and as n-step rows, compared with values worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec
from border_cli.dataset import recorded_episodes as module
from border_cli.dataset.recorded_episodes import (
    Checksum,
    RecordedEpisode,
    group_episodes,
    parallel_steps,
)
from border_cli.errors import ConfigError
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.spaces import box

SPEC = EnvSpec(
    id="numbers",
    observation=box((1,), high=1e9),
    action=DiscreteSpace(100),
    max_episode_steps=None,
)


def episode(
    first: int, rewards: Sequence[float], *, terminated: bool = False, truncated: bool = False
) -> RecordedEpisode:
    """Returns an episode with observations first, first + 1, …, and actions of the same numbers."""
    steps = len(rewards)
    ends = np.zeros((2, steps), np.bool_)
    ends[:, -1] = terminated, truncated
    return RecordedEpisode(
        obs=np.arange(first, first + steps + 1, dtype=np.float32)[:, None],
        action=np.arange(first, first + steps),
        reward=np.array(rewards, np.float32),
        terminated=ends[0],
        truncated=ends[1],
    )


def rows(*episodes: RecordedEpisode, n_steps: int = 1) -> list[tuple[int, int, float, float, int]]:
    """Returns (obs, action, reward, discount, next_obs) of all rows, sorted; gamma is 0.5."""
    group = list(episodes)
    processor = NStep(NStepConfig(n_steps=n_steps), gamma=0.5, num_envs=len(group))
    tuples = []
    for step in parallel_steps(group):
        part: Any = processor.process(step)
        columns = (part.obs[:, 0], part.action, part.reward, part.discount, part.next_obs[:, 0])
        tuples += list(zip(*(column.tolist() for column in columns), strict=True))
    assert processor.pending == 0
    return sorted(tuples)


def test_termination_ends_the_return_and_a_cut_does_not() -> None:
    died = episode(0, [1, 2], terminated=True)
    cut = episode(10, [3], truncated=True)
    assert rows(died, cut) == [(0, 0, 1, 0.5, 1), (1, 1, 2, 0, 2), (10, 10, 3, 0.5, 11)]


def test_an_episode_without_an_end_was_cut_off() -> None:
    assert rows(episode(0, [1, 2]), n_steps=3) == [(0, 0, 2, 0.25, 2), (1, 1, 2, 0.5, 2)]


def test_an_end_that_is_both_is_a_termination() -> None:
    assert rows(episode(0, [1], terminated=True, truncated=True)) == [(0, 0, 1, 0, 1)]


def test_n_steps_stay_within_their_episode_whatever_the_lengths() -> None:
    short = episode(0, [1], terminated=True)
    long = episode(10, [1, 2, 4, 8], truncated=True)
    assert rows(short, long, n_steps=2) == [
        (0, 0, 1, 0, 1),
        (10, 10, 2, 0.25, 12),  # 1 + 2 / 2
        (11, 11, 4, 0.25, 13),
        (12, 12, 8, 0.25, 14),
        (13, 13, 8, 0.5, 14),
    ]


@pytest.mark.parametrize("n_steps", [1, 3])
def test_parallel_steps_is_one_after_another(n_steps: int) -> None:
    rng = np.random.default_rng(0)
    many = [
        episode(100 * i, rng.normal(size=rng.integers(1, 9)).tolist(), terminated=bool(i % 2))
        for i in range(20)
    ]
    apart = [row for one_episode in many for row in rows(one_episode, n_steps=n_steps)]
    assert rows(*many, n_steps=n_steps) == sorted(apart)


def test_a_dict_keeps_its_keys() -> None:
    obs = {"b": np.array([[0.5], [1.5]], np.float32), "a": np.array([3, 4])}
    recorded = RecordedEpisode(
        obs=obs,
        action=np.array([1]),
        reward=np.ones(1, np.float32),
        terminated=np.ones(1, np.bool_),
        truncated=np.zeros(1, np.bool_),
    )
    (step,) = parallel_steps([recorded])
    assert isinstance(step.obs, dict)
    assert isinstance(step.next_obs, dict)
    assert (step.obs["b"].item(), step.obs["a"].item()) == (0.5, 3)
    assert (step.next_obs["b"].item(), step.next_obs["a"].item()) == (1.5, 4)


def test_groups_are_bounded_in_number_and_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [episode(0, [0.0] * length) for length in (1, 1, 9, 1, 1, 1)]
    monkeypatch.setattr(module, "GROUP", 3)
    assert [len(group) for group in group_episodes(many, SPEC)] == [3, 3]
    # an observation has 4 bytes, so three episodes of up to 10 observations need 120 bytes
    monkeypatch.setattr(module, "GROUP_NBYTES", 100)
    assert [len(group) for group in group_episodes(many, SPEC)] == [2, 2, 2]
    monkeypatch.setattr(module, "GROUP_NBYTES", 1)
    assert [len(group) for group in group_episodes(many, SPEC)] == [1] * 6


def test_a_checksum_depends_on_every_value_and_on_nothing_else() -> None:
    def checksum_of(*episodes: RecordedEpisode) -> str:
        checksum = Checksum()
        assert list(checksum.update_each(episodes)) == list(episodes)
        return str(checksum)

    first, second = episode(0, [1, 2]), episode(5, [3])
    assert checksum_of(first, second) == checksum_of(episode(0, [1, 2]), episode(5, [3]))
    changed = [
        (second, first),
        (first, episode(6, [3])),
        (first, episode(5, [4])),
        (first, episode(5, [3], terminated=True)),
        (first, episode(5, [3], truncated=True)),
    ]
    assert len({checksum_of(first, second), *(checksum_of(*pair) for pair in changed)}) == 6


@pytest.mark.parametrize(
    ("last", "said"), [([1, 0], ""), ([0, 0], "step 2 has"), ([1, 2], "step 2")]
)
@pytest.mark.parametrize("first", [0, 1])
def test_actions_that_their_mask_excludes_are_refused(last: Any, said: str, first: int) -> None:
    """The second action is 1. The first step has the mask [1, 0]."""
    masks = np.array([[1, 0], [1, 1], last], np.uint8)
    recorded = replace(
        episode(0, [0, 0]),
        obs={"action_mask": masks, "place": np.zeros(3, np.int64)},
        action=np.array([first, 1]),
    )
    space = DictSpace({"action_mask": box((2,), "uint8"), "place": DiscreteSpace(1)}, masked=True)
    spec = replace(SPEC, observation=space, action=DiscreteSpace(2))
    expected = r"actions: step 0 has the action_mask \[1, 0\], which excludes 1;" if first else said
    with pytest.raises(ConfigError, match=expected) if expected else nullcontext():
        module.refuse_damaged("episode 3", recorded, spec)
