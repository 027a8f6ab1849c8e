"""Hindsight replay: which goals replace which, what that is worth, and that a resume goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from border_cli.core.interfaces import GoalRewards
from border_cli.core.rows import EPISODE_COLUMN, concatenate
from border_cli.core.spaces import DictSpace, DiscreteSpace, EnvSpec
from border_cli.core.types import EPISODE, Transitions
from border_cli.errors import RunFailed
from border_cli.replay_buffer.config import HindsightConfig, Strategy
from border_cli.replay_buffer.hindsight import HindsightReplayBuffer
from tests.support.buffers import copy_rows
from tests.support.spaces import reals

GAMMA = 0.9


def spec_of(**parts: Any) -> EnvSpec:
    space = DictSpace(parts)
    return EnvSpec(id="Goals-v0", observation=space, action=DiscreteSpace(2), max_episode_steps=9)


SPEC = spec_of(observation=reals(2), achieved_goal=reals(1), desired_goal=reals(1))


class Near(GoalRewards):
    """Reward -|achieved - desired|; ends where they are equal."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        return -np.abs(achieved - desired)[:, 0]

    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        return (achieved == desired)[:, 0] if self.ends else None


def buffer_of(capacity: int = 100, seed: int = 0, ends: bool = False, **settings: Any) -> Any:
    return HindsightReplayBuffer(
        HindsightConfig(capacity=capacity, **settings),
        spec=SPEC,
        rng=np.random.default_rng(seed),
        extras=[EPISODE_COLUMN],
        goal_rewards=Near(ends),
        gamma=GAMMA,
    )


def row(episode: int, step: int, *, last: bool = False, moves: bool = True) -> Transitions:
    """Step `step` of an episode with goal -1, in which 100 * episode + step + 1 is achieved, or
    100 * episode where nothing moves."""

    def observed(step: int) -> dict[str, NDArray[Any]]:
        return {
            "observation": np.array([[episode, step]], np.float32),
            "achieved_goal": np.array([[100 * episode + step * moves]], np.float32),
            "desired_goal": np.array([[-1]], np.float32),
        }

    return Transitions(
        obs=observed(step),
        action=np.array([step]),
        reward=np.array([-7], np.float32),
        discount=np.array([0 if last else GAMMA], np.float32),
        next_obs=observed(step + 1),
        extras={EPISODE: np.array([episode])},
    )


def interleaved(streams: int, rows: int, seed: int = 0) -> list[tuple[int, int, bool]]:
    """(episode, step, terminated) as they arrive from environments whose turns are random."""
    rng = np.random.default_rng(seed)
    at = [(i, 0) for i in range(streams)]
    episodes, found = streams, []
    for _ in range(rows):
        i = int(rng.integers(streams))
        episode, step = at[i]
        ending = rng.random()  # 0 … 0.1 terminates, 0.1 … 0.2 is truncated
        found.append((episode, step, ending < 0.1))
        at[i] = (episode, step + 1)
        if ending < 0.2:
            at[i], episodes = (episodes, 0), episodes + 1
    return found


def push(buffer: Any, arriving: list[tuple[int, int, bool]], seed: int = 1) -> None:
    """In messages of random sizes."""
    rng = np.random.default_rng(seed)
    rows = [row(episode, step, last=last) for episode, step, last in arriving]
    while rows:
        count = int(rng.integers(1, 40))
        buffer.push(concatenate(rows[:count]))
        del rows[:count]


def goals_of(buffer: Any, batches: int = 25) -> dict[tuple[int, int], Counter[int]]:
    """How often each goal replaced that of which row (episode and step)."""
    found: dict[tuple[int, int], Counter[int]] = {}
    for _ in range(batches):
        batch = buffer.sample(500)
        observed = batch.obs["observation"].astype(int).tolist()
        for (episode, step), goal in zip(observed, batch.next_obs["desired_goal"], strict=True):
            if goal[0] != -1:
                found.setdefault((episode, step), Counter())[int(goal[0])] += 1
    return found


@pytest.mark.parametrize(("capacity", "rows"), [(100, 80), (50, 200)], ids=["", "wrapped"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_goals_are_those_of_the_strategy_in_the_same_episode_of_the_same_stream(
    strategy: Strategy, capacity: int, rows: int
) -> None:
    arriving = interleaved(5, rows)
    buffer = buffer_of(capacity, strategy=strategy)
    push(buffer, arriving)
    stored = arriving[-capacity:]
    expected = {}
    for episode, step, _ in stored:
        steps = [other for which, other, _ in stored if which == episode]
        chosen = {
            Strategy.future: [each for each in steps if each >= step],
            Strategy.final: [max(steps)],
            Strategy.episode: steps,
        }[strategy]
        expected[episode, step] = {100 * episode + each + 1 for each in chosen}
    assert {place: set(goals) for place, goals in goals_of(buffer, 50).items()} == expected


def test_every_later_outcome_is_as_likely() -> None:
    buffer = buffer_of()
    push(buffer, [(3, step, False) for step in range(5)])
    goals = goals_of(buffer)
    for step in range(5):
        counts = [goals[3, step][300 + each + 1] for each in range(step, 5)]
        share = sum(counts) / len(counts)  # of about 2,000 draws; five standard deviations
        np.testing.assert_allclose(counts, share, atol=5 * np.sqrt(share))


@pytest.mark.parametrize("k", [0, 1, 4])
def test_k_of_k_plus_one_have_another_goal_and_the_others_are_as_stored(k: int) -> None:
    buffer = buffer_of(k=k)
    push(buffer, [(0, step, False) for step in range(50)])
    others = 0
    for _ in range(20):
        batch = buffer.sample(500)
        own = batch.obs["desired_goal"][:, 0] == -1
        np.testing.assert_array_equal(batch.reward[own], -7)
        np.testing.assert_array_equal(batch.obs["desired_goal"], batch.next_obs["desired_goal"])
        others += int((~own).sum())
    deviation = np.sqrt(10_000 * k) / (k + 1)  # binomial
    assert others == pytest.approx(10_000 * k / (k + 1), abs=5 * deviation)


@pytest.mark.parametrize("draws", [1, 8, 40])
def test_rows_whose_goal_was_achieved_before_are_drawn_again(draws: int) -> None:
    """5 rows of 100 move something, so all `draws` of a goal miss them with 0.95**draws."""
    buffer = buffer_of(draws=draws)
    buffer.push(concatenate([row(0, step) for step in range(5)]))
    buffer.push(concatenate([row(1, step, moves=False) for step in range(95)]))
    moving = others = 0
    for _ in range(20):
        batch = buffer.sample(500)
        own = batch.obs["desired_goal"][:, 0] == -1
        episode = batch.obs["observation"][:, 0]
        others += int((~own).sum())
        moving += int((episode[~own] == 0).sum())
        goals, steps = (each[~own] for each in (batch.obs["desired_goal"][:, 0], batch.action))
        still = episode[~own] == 1
        assert set(goals[still]) <= {100}
        assert ((steps < goals) & (goals <= 5))[~still].all()
        # Rows that keep their goal are as likely as ever.
        assert (episode[own] == 0).mean() == pytest.approx(0.05, abs=0.12)
    expected = 1 - 0.95**draws
    deviation = np.sqrt(expected * (1 - expected) / others)
    assert moving / others == pytest.approx(expected, abs=5 * deviation)


@pytest.mark.parametrize("ends", [False, True])
def test_rewards_are_computed_for_the_new_goal_and_ends_follow_it(ends: bool) -> None:
    """The last row terminated for its own goal; a row ends where it achieved its new one."""
    buffer = buffer_of(ends=ends)
    push(buffer, [(0, step, step == 9) for step in range(10)])
    batch = buffer.sample(2000)
    achieved, goal = (batch.next_obs[name][:, 0] for name in ("achieved_goal", "desired_goal"))
    other = goal != -1
    np.testing.assert_array_equal(batch.reward[other], -np.abs(achieved - goal)[other])
    terminated = batch.obs["observation"][:, 1] == 9
    if ends:
        terminated = np.where(other, achieved == goal, terminated)
    expected = np.where(terminated, 0, GAMMA).astype(np.float32)
    np.testing.assert_array_equal(batch.discount, expected)
    assert (terminated & other).sum() > 100
    np.testing.assert_array_equal(
        buffer.rows(np.arange(10)).reward, np.full(10, -7)
    )  # what is stored stays


def test_an_episode_whose_rows_were_overwritten_goes_on_from_those_that_are_left() -> None:
    buffer = buffer_of(capacity=4, strategy=Strategy.episode)
    push(buffer, [(0, 0, False), *((1, step, False) for step in range(4)), (0, 1, False)])
    buffer.push(row(0, 2))
    goals = goals_of(buffer)
    assert set(goals[0, 1]) == {2, 3}
    assert set(goals[1, 3]) == {103, 104}


def test_rows_without_an_episode_are_refused() -> None:
    with pytest.raises(RunFailed, match="replay_buffer=hindsight needs the episode"):
        buffer_of().push(replace(row(0, 0), extras={}))


def restored(buffer: Any, **settings: Any) -> Any:
    """Another buffer with its state and rows, as a checkpoint brings them back."""
    other = buffer_of(buffer.capacity, seed=99, **settings)
    other.load_state_dict(buffer.state_dict())
    copy_rows(buffer, other, 1000)
    return other


@pytest.mark.parametrize(
    ("rows", "settings"),
    [(50, {}), (150, {}), (150, {"strategy": Strategy.episode, "draws": 3})],
    ids=["", "wrapped", "draws"],
)
def test_a_restored_buffer_draws_the_same_goals_and_goes_on_with_open_episodes(
    rows: int, settings: dict[str, Any]
) -> None:
    arriving = interleaved(4, rows + 100)
    buffer = buffer_of(90, **settings)
    push(buffer, arriving[:rows])
    buffer.sample(16)
    other = restored(buffer, **settings)
    for start in range(rows, rows + 100, 10):
        for each in (buffer, other):
            push(each, arriving[start : start + 10])
        mine, its = buffer.sample(32), other.sample(32)
        for name in ("reward", "discount", "index", "action"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(its, name))
        np.testing.assert_array_equal(mine.obs["desired_goal"], its.obs["desired_goal"])
