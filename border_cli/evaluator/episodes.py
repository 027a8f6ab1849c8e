"""Evaluation by whole episodes, all of them in parallel in one vector of environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import EvaluatorConfig
from border_cli.core.errors import BadStep
from border_cli.core.interfaces import Env, EnvFactory, Evaluation, Evaluator, Policy
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Array, Metrics, leaves, map_array
from border_cli.core.words import counted
from border_cli.evaluator.config import EpisodesConfig

DEFAULT_LIMIT = 10_000  # env steps, where neither the settings nor the environment have one


def episode_limit(config: EpisodesConfig, spec: EnvSpec) -> tuple[int, str]:
    """The env steps after which an episode is over at the latest, and who says so.

    `evaluator.max_episode_steps`, `env`, or `default` where neither of the two has a limit.
    """
    if config.max_episode_steps is not None and (
        spec.max_episode_steps is None or config.max_episode_steps < spec.max_episode_steps
    ):
        return config.max_episode_steps, "evaluator.max_episode_steps"
    if spec.max_episode_steps is not None:
        return spec.max_episode_steps, "env"
    return DEFAULT_LIMIT, "default"


def return_metrics(returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> Metrics:
    """What is recorded of the episodes; the deviation is that of the population.  [E], [E]"""
    return {
        "eval/return": float(returns.mean()),
        "eval/return_std": float(returns.std()),
        "eval/return_min": float(returns.min()),
        "eval/return_max": float(returns.max()),
        "eval/length": float(lengths.mean()),
    }


def evaluation_of(
    config: EvaluatorConfig,
    spec: EnvSpec,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> Evaluation:
    """What an evaluation with these episodes found.  [E], [E]"""
    score = float(returns.mean())
    metrics = dict(return_metrics(returns, lengths))
    normalized = config.normalized(score)
    if normalized is not None:
        metrics["eval/normalized_score"] = normalized
    human_normalized = spec.human_normalized(score)
    if human_normalized is not None:
        metrics["eval/human_normalized"] = human_normalized
    return Evaluation(
        score=score,
        returns=tuple(returns.tolist()),
        lengths=tuple(lengths.tolist()),
        metrics=metrics,
    )


class Play:
    """One greedy episode in each of E environments, to its end or to `limit` env steps.

    They may be some of the episodes of a wider evaluation, of those from `first` on: the policy
    then acts for all of them, on rows that nobody looks at for the others, because what an
    arithmetic library computes for a row depends on the number of rows.
    """

    def __init__(
        self,
        policy: Policy,
        env: Env,
        *,
        seed: int,
        limit: int,
        first: int = 0,
        width: int | None = None,
    ) -> None:
        self._policy, self._env = policy, env
        self._limit = limit
        self._rows = slice(first, first + env.num_envs)
        self._width = env.num_envs if width is None else width
        self.returns = np.zeros(env.num_envs)  # [E] float64
        self.lengths = np.zeros(env.num_envs, np.int64)  # [E]
        self._running = np.ones(env.num_envs, np.bool_)  # [E]
        self._obs = env.reset(seed)  # [E, …]
        self._wide = None if self._width == env.num_envs else self._widened(self._obs)
        policy.forget(range(self._width))
        self.steps = 0

    def _widened(self, obs: Array) -> Array:
        """These observations over and over.  [width, …]"""
        rows = np.arange(self._width) % self._env.num_envs
        return map_array(lambda leaf: leaf[rows], obs)

    @property
    def running(self) -> bool:
        """Whether an episode is not over yet."""
        return self.steps < self._limit and bool(self._running.any())

    def step(self) -> None:
        """Acts once in each environment."""
        step = self._env.step(self._act())
        self.returns += step.reward  # 0 where the episode is over
        self.lengths += self._running
        self._running &= ~(step.terminated | step.truncated)
        self._obs = step.act_obs
        self.steps += 1

    def _act(self) -> NDArray[Any]:
        """The greedy actions.  [E] or [E, A]"""
        if self._wide is None:
            return self._policy.act(self._obs, explore=False)
        for wide, own in zip(leaves(self._wide), leaves(self._obs), strict=True):
            wide[self._rows] = own
        return self._policy.act(self._wide, explore=False)[self._rows]


class EpisodesEvaluator(Evaluator):
    """One greedy episode in each environment of the factory; owns that environment.

    The learner's thread calls it. The environment is made at the first evaluation and kept.
    """

    def __init__(
        self,
        config: EpisodesConfig,
        *,
        factory: EnvFactory,
        seed: int,
        stop: StopFlag,
        heartbeat: Heartbeat,
    ) -> None:
        self.config = config
        self._factory = factory
        self._seed = seed
        self._stop = stop
        self._heartbeat = heartbeat
        self._env: Env | None = None

    @property
    def spec(self) -> EnvSpec:
        """That of the environment."""
        return self._factory.spec

    @property
    def limit(self) -> tuple[int, str]:
        """The cut in env steps, and who says so: see `episode_limit`."""
        return episode_limit(self.config, self._factory.spec)

    def describe(self) -> str:
        steps, who = self.limit
        sources = {"default": "default; the env has none", "env": "from the env"}
        source = sources.get(who, who)
        config = self.config
        episodes = counted(config.num_episodes, "episode")
        line = f"{episodes}, episode limit {counted(steps, 'step')} ({source})"
        if config.ref_min_score is None:
            return line
        low, high = config.ref_min_score, config.ref_max_score
        return f"{line}; normalized score: 0 at return {low:g}, 100 at return {high:g}"

    def evaluate(self, policy: Policy) -> Evaluation:
        """The episodes of this seed, with the greedy actions of `policy`."""
        with self._watched():
            self._env = self._env or self._made()
            return evaluation_of(self.config, self.spec, *self._play(policy, self._env))

    def extended(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """The next episodes of this seed: together they are those that more environments at once
        would play."""
        with self._watched(), closing(self._made(first=len(evaluation.returns))) as others:
            returns, lengths = self._play(policy, others)
        return evaluation_of(
            self.config,
            self.spec,
            np.concatenate([evaluation.returns, returns]),
            np.concatenate([evaluation.lengths, lengths]),
        )

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with self._heartbeat.working():
                yield
        except BadStep as error:
            raise error.within("evaluation") from None

    def _play(self, policy: Policy, env: Env) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns and lengths of one episode in each environment.  [E], [E]"""
        play = Play(policy, env, seed=self._seed, limit=self.limit[0])
        while play.running:
            self._stop.check()
            self._heartbeat.beat()
            play.step()
        return play.returns, play.lengths

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _made(self, first: int = 0) -> Env:
        env = self._factory.make(training=False, first=first)
        assert env.num_envs == self.config.num_episodes, "one episode per environment"
        self._heartbeat.beat()  # constructing many environments may take its time
        return env
