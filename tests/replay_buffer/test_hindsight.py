"""Hindsight replay: choice of goals, recomputed rewards, and resumes."""

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
    """The reward is -|achieved - desired|. Equal goals terminate if `ends` is true."""

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
    """Returns step `step` of an episode with goal -1. It achieves 100 * episode + step + 1, or
    100 * episode if `moves` is false."""

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


def interleave(streams: int, rows: int, seed: int = 0) -> list[tuple[int, int, bool]]:
    """Returns (episode, step, terminated) of environments that step in a random order."""
    rng = np.random.default_rng(seed)
    positions = [(i, 0) for i in range(streams)]
    episodes, arriving = streams, []
    for _ in range(rows):
        i = int(rng.integers(streams))
        episode, step = positions[i]
        ending = rng.random()  # 0 … 0.1 terminates, 0.1 … 0.2 is truncated
        arriving.append((episode, step, ending < 0.1))
        positions[i] = (episode, step + 1)
        if ending < 0.2:
            positions[i], episodes = (episodes, 0), episodes + 1
    return arriving


def push(buffer: Any, arriving: list[tuple[int, int, bool]], seed: int = 1) -> None:
    """Pushes rows in messages of random sizes."""
    rng = np.random.default_rng(seed)
    rows = [row(episode, step, last=last) for episode, step, last in arriving]
    while rows:
        count = int(rng.integers(1, 40))
        buffer.push(concatenate(rows[:count]))
        del rows[:count]


def goals_of(buffer: Any, batches: int = 25) -> dict[tuple[int, int], Counter[int]]:
    """Counts the replacing goals of every row, keyed by (episode, step)."""
    goals: dict[tuple[int, int], Counter[int]] = {}
    for _ in range(batches):
        batch = buffer.sample(500)
        observed = batch.obs["observation"].astype(int).tolist()
        for (episode, step), goal in zip(observed, batch.next_obs["desired_goal"], strict=True):
            if goal[0] != -1:
                goals.setdefault((episode, step), Counter())[int(goal[0])] += 1
    return goals


@pytest.mark.parametrize(("capacity", "rows"), [(100, 80), (50, 200)], ids=["", "wrapped"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_goals_are_those_of_the_strategy_in_the_same_episode_of_the_same_stream(
    strategy: Strategy, capacity: int, rows: int
) -> None:
    arriving = interleave(5, rows)
    buffer = buffer_of(capacity, strategy=strategy)
    push(buffer, arriving)
    stored = arriving[-capacity:]
    expected = {}
    for episode, step, _ in stored:
        steps = [row_step for row_episode, row_step, _ in stored if row_episode == episode]
        chosen = {
            Strategy.future: [later for later in steps if later >= step],
            Strategy.final: [max(steps)],
            Strategy.episode: steps,
        }[strategy]
        expected[episode, step] = {100 * episode + chosen_step + 1 for chosen_step in chosen}
    assert {row_key: set(goals) for row_key, goals in goals_of(buffer, 50).items()} == expected


def test_every_later_outcome_is_as_likely() -> None:
    buffer = buffer_of()
    push(buffer, [(3, step, False) for step in range(5)])
    goals = goals_of(buffer)
    for step in range(5):
        counts = [goals[3, step][300 + later + 1] for later in range(step, 5)]
        mean = sum(counts) / len(counts)  # about 2,000 draws; five standard deviations
        np.testing.assert_allclose(counts, mean, atol=5 * np.sqrt(mean))


@pytest.mark.parametrize("k", [0, 1, 4])
def test_k_of_k_plus_one_have_another_goal_and_the_others_are_as_stored(k: int) -> None:
    buffer = buffer_of(k=k)
    push(buffer, [(0, step, False) for step in range(50)])
    others = 0
    for _ in range(20):
        batch = buffer.sample(500)
        stored = batch.obs["desired_goal"][:, 0] == -1
        np.testing.assert_array_equal(batch.reward[stored], -7)
        np.testing.assert_array_equal(batch.obs["desired_goal"], batch.next_obs["desired_goal"])
        others += int((~stored).sum())
    deviation = np.sqrt(10_000 * k) / (k + 1)  # binomial
    assert others == pytest.approx(10_000 * k / (k + 1), abs=5 * deviation)


@pytest.mark.parametrize("draws", [1, 8, 40])
def test_rows_whose_goal_was_achieved_before_are_drawn_again(draws: int) -> None:
    """5 of 100 rows move, so all `draws` draws miss them with probability 0.95**draws."""
    buffer = buffer_of(draws=draws)
    buffer.push(concatenate([row(0, step) for step in range(5)]))
    buffer.push(concatenate([row(1, step, moves=False) for step in range(95)]))
    moving = others = 0
    for _ in range(20):
        batch = buffer.sample(500)
        stored = batch.obs["desired_goal"][:, 0] == -1
        episode = batch.obs["observation"][:, 0]
        others += int((~stored).sum())
        moving += int((episode[~stored] == 0).sum())
        goals, steps = (part[~stored] for part in (batch.obs["desired_goal"][:, 0], batch.action))
        still = episode[~stored] == 1
        assert set(goals[still]) <= {100}
        assert ((steps < goals) & (goals <= 5))[~still].all()
        # Rows that keep their goal are drawn uniformly.
        assert (episode[stored] == 0).mean() == pytest.approx(0.05, abs=0.12)
    expected = 1 - 0.95**draws
    deviation = np.sqrt(expected * (1 - expected) / others)
    assert moving / others == pytest.approx(expected, abs=5 * deviation)


@pytest.mark.parametrize("ends", [False, True])
def test_rewards_are_computed_for_the_new_goal_and_ends_follow_it(ends: bool) -> None:
    """The last row terminated for its original goal. A row ends if it achieves its new goal."""
    buffer = buffer_of(ends=ends)
    push(buffer, [(0, step, step == 9) for step in range(10)])
    batch = buffer.sample(2000)
    achieved, goal = (batch.next_obs[name][:, 0] for name in ("achieved_goal", "desired_goal"))
    replaced = goal != -1
    np.testing.assert_array_equal(batch.reward[replaced], -np.abs(achieved - goal)[replaced])
    terminated = batch.obs["observation"][:, 1] == 9
    if ends:
        terminated = np.where(replaced, achieved == goal, terminated)
    expected = np.where(terminated, 0, GAMMA).astype(np.float32)
    np.testing.assert_array_equal(batch.discount, expected)
    assert (terminated & replaced).sum() > 100
    np.testing.assert_array_equal(
        buffer.rows(np.arange(10)).reward, np.full(10, -7)
    )  # stored rows do not change


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


def restore(buffer: Any, **settings: Any) -> Any:
    """Returns another buffer with the same state and rows, as restored from a checkpoint."""
    copy = buffer_of(buffer.capacity, seed=99, **settings)
    copy.load_state_dict(buffer.state_dict())
    copy_rows(buffer, copy, 1000)
    return copy


@pytest.mark.parametrize(
    ("rows", "settings"),
    [(50, {}), (150, {}), (150, {"strategy": Strategy.episode, "draws": 3})],
    ids=["", "wrapped", "draws"],
)
def test_a_restored_buffer_draws_the_same_goals_and_goes_on_with_open_episodes(
    rows: int, settings: dict[str, Any]
) -> None:
    arriving = interleave(4, rows + 100)
    buffer = buffer_of(90, **settings)
    push(buffer, arriving[:rows])
    buffer.sample(16)
    copy = restore(buffer, **settings)
    for start in range(rows, rows + 100, 10):
        for target in (buffer, copy):
            push(target, arriving[start : start + 10])
        batch, copied = buffer.sample(32), copy.sample(32)
        for name in ("reward", "discount", "index", "action"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(copied, name))
        np.testing.assert_array_equal(batch.obs["desired_goal"], copied.obs["desired_goal"])
