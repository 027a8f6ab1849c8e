"""Evaluation of scripted episodes, and of CartPole compared with a plain loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from border_cli.core.interfaces import Env, EnvFactory, Policy
from border_cli.core.spaces import BoxSpace, DiscreteSpace, EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Array, Beat, Snapshot, Step
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.episodes import (
    EpisodesEvaluator,
    episode_limit,
    evaluation_of,
    known_limit,
)


class Scripted(Env):
    """Environment i pays rewards[i] per step and ends after lengths[i] steps (0 means never)."""

    def __init__(self, rewards: list[float], lengths: list[int]) -> None:
        self.num_envs = len(rewards)
        self.rewards, self.lengths = np.array(rewards), np.array(lengths)
        self.seeds: list[int] = []
        self.closed = 0

    def reset(self, seed: int) -> Array:
        self.seeds.append(seed)
        self.t = 0
        return np.zeros((self.num_envs, 1), np.float32)

    def step(self, action: Any) -> Step:
        self.t += 1
        moves = (self.lengths == 0) | (self.t <= self.lengths)
        obs = np.full((self.num_envs, 1), self.t, np.float32)
        ends = self.lengths == self.t
        return Step(
            obs=obs - 1,
            action=action,
            reward=(moves * self.rewards).astype(np.float32),
            terminated=ends & (self.rewards > 0),
            truncated=ends & (self.rewards <= 0),
            next_obs=obs,
            act_obs=obs,
        )

    def close(self) -> None:
        self.closed += 1


class ScriptedFactory(EnvFactory):
    def __init__(self, env: Scripted, limit: int | None) -> None:
        self.env, self.limit = env, limit
        self.made: list[bool] = []
        self.firsts: list[int] = []

    @property
    def spec(self) -> EnvSpec:
        box = BoxSpace((1,), "float32", np.zeros(1), np.ones(1))
        return EnvSpec("Scripted", box, DiscreteSpace(2), self.limit)

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        del render
        self.made.append(training)
        self.firsts.append(first)
        for _ in range(self.env.num_envs):
            if beat:
                beat()
        return self.env


class Recording(Policy):
    """Pushes the cart to where the pole falls; records observations and calls."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.explored: set[bool] = set()
        self.forgot: list[list[int]] = []

    def act(self, obs: Array, *, explore: bool) -> Any:
        assert isinstance(obs, np.ndarray)
        self.seen.append(obs)
        self.explored.add(explore)
        return (obs[:, -2:].sum(axis=1) > 0).astype(np.int64)

    def forget(self, envs: Sequence[int]) -> None:
        self.forgot.append(list(envs))

    def load_snapshot(self, snapshot: Snapshot) -> None:
        raise AssertionError(f"nobody loads {snapshot}")


class Falling(Recording):
    """Always pushes the cart to the same side."""

    def act(self, obs: Array, *, explore: bool) -> Any:
        return super().act(obs, explore=explore) * 0


class Case:
    """An evaluator of scripted episodes, with its parts."""

    def __init__(
        self,
        rewards: list[float],
        lengths: list[int],
        cut: int | None = None,
        env_limit: int | None = None,
        references: tuple[float, float] | None = None,
    ) -> None:
        low, high = references or (None, None)
        self.env = Scripted(rewards, lengths)
        self.factory = ScriptedFactory(self.env, env_limit)
        self.stop, self.heartbeat = StopFlag(), Heartbeat("learner")
        self.policy = Recording()
        self.evaluator = EpisodesEvaluator(
            EpisodesConfig(
                num_episodes=len(rewards),
                max_episode_steps=cut,
                ref_min_score=low,
                ref_max_score=high,
            ),
            factory=self.factory,
            seed=11,
            stop=self.stop,
            heartbeat=self.heartbeat,
        )


def test_the_score_is_the_mean_return_and_the_metrics_follow_from_the_episodes():
    case = Case(rewards=[1.0, 2.0, -1.0], lengths=[3, 5, 1])
    evaluation = case.evaluator.evaluate(case.policy)
    assert evaluation.returns == (3.0, 10.0, -1.0)
    assert evaluation.lengths == (3, 5, 1)
    assert evaluation.score == 4.0
    assert evaluation.metrics == {
        "eval/return": 4.0,
        # deviations -1, 6, -5: sqrt((1 + 36 + 25) / 3)
        "eval/return_std": pytest.approx(4.5460605656619517),
        "eval/return_min": -1.0,
        "eval/return_max": 10.0,
        "eval/length": 3.0,
    }


PAYS = """
import gymnasium as gym
class Pays(gym.Env):
    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(0, 1, (1,))
    def reset(self, *, seed=None, options=None):
        self.left = 3
        return [0.0], {}
    def step(self, action):
        self.left -= 1
        return [0.0], 0.3, self.left == 0, False, {}
"""


def evaluator_in(env_id: str, num_episodes: int) -> EpisodesEvaluator:
    """Returns an evaluator in an environment of Gymnasium."""
    return EpisodesEvaluator(
        EpisodesConfig(num_episodes=num_episodes),
        factory=GymEnvFactory(GymConfig(id=env_id, num_envs=num_episodes)),
        seed=3,
        stop=StopFlag(),
        heartbeat=Heartbeat("learner"),
    )


def test_a_return_is_the_sum_of_the_rewards_that_the_environment_gave(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pays.py").write_text(PAYS)
    monkeypatch.syspath_prepend(folder)
    evaluator = evaluator_in("pays:Pays", num_episodes=2)
    evaluation = evaluator.evaluate(Recording())
    evaluator.close()
    assert evaluation.returns == (0.3 + 0.3 + 0.3,) * 2


def test_the_mean_of_equal_returns_is_that_return() -> None:
    spec = Case([1.0], [1]).factory.spec
    for value in (0.9, 0.1, 1 / 3):
        evaluation = evaluation_of(EpisodesConfig(), spec, [value] * 20, [1] * 20, {})
        assert evaluation.score == value


def test_with_references_the_score_is_recorded_on_their_scale_too():
    case = Case(rewards=[1.0, 2.0, -1.0], lengths=[3, 5, 1], references=(-4.0, 12.0))
    evaluation = case.evaluator.evaluate(case.policy)
    assert evaluation.score == evaluation.metrics["eval/return"] == 4.0
    assert evaluation.metrics["eval/normalized_score"] == 50.0
    assert case.evaluator.describe().endswith("normalized score: 0 at return -4, 100 at return 12")


def test_it_acts_greedily_on_all_episodes_at_once_until_the_last_one_ends():
    case = Case(rewards=[1.0, 1.0], lengths=[2, 4])
    case.evaluator.evaluate(case.policy)
    assert case.policy.explored == {False}
    assert [obs.tolist() for obs in case.policy.seen] == [[[t], [t]] for t in range(4)]


def test_the_environment_is_made_at_the_first_evaluation_and_kept():
    case = Case(rewards=[1.0], lengths=[2])
    assert case.factory.made == []
    first, second = (case.evaluator.evaluate(case.policy) for _ in range(2))
    assert case.factory.made == [False]
    assert case.env.seeds == [11, 11]
    assert first == second


def test_an_evaluation_is_extended_by_the_episodes_that_follow():
    case = Case(rewards=[1.0, 3.0], lengths=[2, 4])
    evaluation = case.evaluator.evaluate(case.policy)
    extended = case.evaluator.extend(case.policy, evaluation)
    extended_twice = case.evaluator.extend(case.policy, extended)
    assert case.factory.firsts == [0, 2, 4]
    assert case.env.closed == 2  # environments of further episodes; the first ones stay open
    assert extended_twice.returns == (2.0, 12.0) * 3
    assert extended_twice.score == extended_twice.metrics["eval/return"] == 7.0


def test_further_episodes_are_those_that_more_environments_at_once_would_play():
    def make(episodes: int) -> EpisodesEvaluator:
        config = GymConfig(id="CartPole-v1", num_envs=episodes)
        return EpisodesEvaluator(
            EpisodesConfig(num_episodes=episodes),
            factory=GymEnvFactory(config),
            seed=5,
            stop=StopFlag(),
            heartbeat=Heartbeat("learner"),
        )

    three, six = make(3), make(6)
    evaluation = three.extend(Falling(), three.evaluate(Falling()))
    assert evaluation == six.evaluate(Falling())
    assert evaluation.returns[3:] != evaluation.returns[:3]
    three.close()
    six.close()


def test_close_may_come_twice_and_without_an_evaluation():
    case = Case(rewards=[1.0], lengths=[2])
    case.evaluator.close()
    case.evaluator.evaluate(case.policy)
    case.evaluator.close()
    case.evaluator.close()
    assert case.env.closed == 1


def test_every_step_and_every_environment_constructed_is_a_sign_of_life():
    case = Case(rewards=[1.0] * 3, lengths=[7] * 3)
    case.evaluator.evaluate(case.policy)
    assert case.heartbeat.beats == 11  # start, 3 environments and 7 steps
    case.evaluator.evaluate(case.policy)
    assert case.heartbeat.beats == 19  # the environments are reused


def test_a_request_to_stop_is_raised_before_the_next_step():
    case = Case(rewards=[1.0], lengths=[0])
    case.stop.request(RuntimeError("enough"))
    with pytest.raises(RuntimeError, match=r"^enough$"):
        case.evaluator.evaluate(case.policy)
    assert case.policy.seen == []


def test_episodes_without_end_are_cut_at_the_limit_of_the_settings():
    case = Case(rewards=[1.0, 2.0], lengths=[0, 3], cut=5)
    evaluation = case.evaluator.evaluate(case.policy)
    assert evaluation.lengths == (5, 3)
    assert evaluation.returns == (5.0, 6.0)


@pytest.mark.parametrize(
    ("setting", "of_env", "limit"),
    [
        (None, None, None),
        (None, 500, (500, "from the env")),
        (None, 20_000, (20_000, "from the env")),
        (30, None, (30, "evaluator.max_episode_steps")),
        (30, 500, (30, "evaluator.max_episode_steps")),
        (900, 500, (500, "from the env")),
        (20_000, None, (20_000, "evaluator.max_episode_steps")),
    ],
)
def test_the_limit_says_where_it_comes_from(setting, of_env, limit):
    spec = Case([1.0], [1], env_limit=of_env).factory.spec
    config = EpisodesConfig(max_episode_steps=setting)
    assert known_limit(config, spec) == limit
    # A limit decided by the run applies only if no other limit is set.
    assert episode_limit(config, spec, 77) == (77 if limit is None else limit[0])
    assert episode_limit(config, spec) == (10_000 if limit is None else limit[0])


def test_an_evaluation_without_a_limit_asks_for_one_and_ends_there():
    case = Case(rewards=[1.0, 1.0], lengths=[3, 50], env_limit=None)
    assert case.evaluator.needs_episode_limit
    case.evaluator.limit_episodes(20)
    assert case.evaluator.evaluate(case.policy).lengths == (3, 20)
    assert not Case([1.0], [1], env_limit=9).evaluator.needs_episode_limit


def plain_episode(seed: int, limit: int) -> tuple[float, int]:
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=seed)
    policy, score, length, over = Recording(), 0.0, 0, False
    while not over and length < limit:
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs[None], explore=False)[0])
        score += float(reward)
        length += 1
        over = terminated or truncated
    return score, length


@pytest.mark.parametrize("cut", [None, 150])
def test_cartpole_agrees_with_a_plain_loop_over_the_same_seeds(cut):
    evaluator = EpisodesEvaluator(
        EpisodesConfig(num_episodes=4, max_episode_steps=cut),
        factory=GymEnvFactory(GymConfig(id="CartPole-v1", num_envs=4)),
        seed=3,
        stop=StopFlag(),
        heartbeat=Heartbeat("learner"),
    )
    first, second = (evaluator.evaluate(Recording()) for _ in range(2))
    evaluator.close()
    seeds = [np.random.SeedSequence(3, spawn_key=(i, 0)).generate_state(1)[0] for i in range(4)]
    expected = [plain_episode(int(seed), cut or 500) for seed in seeds]
    assert list(zip(first.returns, first.lengths, strict=True)) == expected
    assert first == second
    assert len(set(first.lengths)) > 1 or cut


def test_every_evaluation_begins_without_what_the_policy_kept_of_the_one_before():
    case = Case(rewards=[1.0, 2.0, -1.0], lengths=[3, 5, 1])
    for _ in range(2):
        case.evaluator.evaluate(case.policy)
    assert case.policy.forgot == [[0, 1, 2]] * 2


def test_a_score_is_held_against_published_ones_and_against_its_references() -> None:
    spec = EnvSpec(
        id="atari/pong",
        observation=DiscreteSpace(1),
        action=DiscreteSpace(6),
        max_episode_steps=None,
        human_scores=(-20.7, 14.6),
    )
    episodes = [14.6, -20.7], [9, 9], {}
    evaluation = evaluation_of(EpisodesConfig(), spec, *episodes)
    assert evaluation.metrics["eval/human_normalized"] == pytest.approx(50)
    without_scores = evaluation_of(EpisodesConfig(), replace(spec, human_scores=None), *episodes)
    assert "eval/human_normalized" not in without_scores.metrics
    assert "eval/normalized_score" not in without_scores.metrics
    references = EpisodesConfig(ref_min_score=-200.0, ref_max_score=0.0)
    for score, normalized in ((-200.0, 0), (-150.0, 25), (0.0, 100), (20.0, 110)):
        evaluation = evaluation_of(references, spec, [score], [9], {})
        assert evaluation.metrics["eval/normalized_score"] == normalized


class Single(gymnasium.Env[Any, Any]):
    """A simulator of which there may be one instance at a time."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    instances = 0

    def __init__(self, **_: Any) -> None:
        assert Single.instances == 0, "the port is in use"
        Single.instances += 1

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, {}

    def close(self) -> None:
        Single.instances -= 1


def test_a_simulator_with_a_single_instance_can_be_evaluated() -> None:
    gymnasium.register("border/Single-v0", entry_point=Single)
    evaluator = evaluator_in("border/Single-v0", num_episodes=1)
    assert evaluator.evaluate(Falling()).score == 1.0
    evaluator.close()
    assert Single.instances == 0
