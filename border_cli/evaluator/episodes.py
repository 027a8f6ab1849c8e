"""Evaluation by whole episodes, all of them in parallel in one vector of environments.

What draws films is imported by the evaluator that makes one.
"""

from __future__ import annotations

import io
import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.core.config import EvaluatorConfig
from border_cli.core.errors import BadStep, RunFailed
from border_cli.core.interfaces import Env, EnvFactory, Evaluation, Evaluator, Film, Policy
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


class Outcome(NamedTuple):
    """How E episodes went."""

    returns: NDArray[np.float64]  # [E]
    lengths: NDArray[np.int64]  # [E]
    info: NDArray[np.float64]  # [E, len(names)]  NaN where an episode has no such value
    names: tuple[str, ...] = ()  # `EnvSpec.info_metrics`


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The episodes of all, in this order."""
    return Outcome(
        np.concatenate([each.returns for each in outcomes]),
        np.concatenate([each.lengths for each in outcomes]),
        np.concatenate([each.info for each in outcomes]),
        outcomes[0].names,
    )


def outcome_of(evaluation: Evaluation, names: tuple[str, ...]) -> Outcome:
    """The episodes of an earlier evaluation."""
    missing = [math.nan] * len(evaluation.returns)
    columns = [evaluation.info.get(name, missing) for name in names]
    info = np.array(columns, np.float64).reshape(len(names), len(missing)).T  # [E, names]
    return Outcome(np.array(evaluation.returns), np.array(evaluation.lengths), info, names)


def evaluation_of(config: EvaluatorConfig, spec: EnvSpec, outcome: Outcome) -> Evaluation:
    """What an evaluation with these episodes found."""
    returns, lengths = outcome.returns, outcome.lengths
    score = float(returns.mean())
    metrics = dict(return_metrics(returns, lengths))
    info = {
        name: tuple(values.tolist())
        for name, values in zip(outcome.names, outcome.info.T, strict=True)
        if not np.isnan(values).any()
    }
    metrics |= {f"eval/{name}": float(np.mean(values)) for name, values in info.items()}
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
        info=info,
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
        names: tuple[str, ...] = (),
    ) -> None:
        """`names`: of what is recorded of an episode's last `info`."""
        self._policy, self._env = policy, env
        self._limit = limit
        self._rows = slice(first, first + env.num_envs)
        self._width = env.num_envs if width is None else width
        self.returns = np.zeros(env.num_envs)  # [E] float64
        self.lengths = np.zeros(env.num_envs, np.int64)  # [E]
        self.names = names
        self._info = np.full((env.num_envs, len(names)), np.nan)  # [E, len(names)]
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

    @property
    def outcome(self) -> Outcome:
        """How the episodes went. What was cut at `limit` has nothing from `info`."""
        return Outcome(self.returns, self.lengths, self._info, self.names)

    def step(self) -> None:
        """Acts once in each environment."""
        step = self._env.step(self._act())
        self.returns += step.reward  # 0 where the episode is over
        self.lengths += self._running
        ended = step.terminated | step.truncated  # [E]
        if step.episodes and self.names:
            for i, episode in zip(np.flatnonzero(ended).tolist(), step.episodes, strict=True):
                self._info[i] = episode.metrics or np.nan
        self._running &= ~ended
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
        film_factory: EnvFactory | None = None,
    ) -> None:
        """`film_factory` makes the one environment of an episode that is filmed."""
        self.config = config
        self._film_factory = film_factory
        self._factory = factory
        self._seed = seed
        self._stop = stop
        self._heartbeat = heartbeat
        self._env: Env | None = None
        self._filmed = 0  # of the films that were due, counted in intervals

    @property
    def spec(self) -> EnvSpec:
        """That of the environment."""
        return self._factory.spec

    @property
    def limit(self) -> tuple[int, str]:
        """The cut in env steps, and who says so: see `episode_limit`."""
        return episode_limit(self.config, self._factory.spec)

    @property
    def info_metrics(self) -> tuple[str, ...]:
        """Names of what is recorded of an episode's last `info`."""
        return self._factory.spec.info_metrics

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
            return evaluation_of(self.config, self.spec, self._play(policy, self._env))

    def extended(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """The next episodes of this seed: together they are those that more environments at once
        would play."""
        with self._watched(), closing(self._made(first=len(evaluation.returns))) as others:
            more = self._play(policy, others)
        outcome = joined([outcome_of(evaluation, more.names), more])
        return evaluation_of(self.config, self.spec, outcome)

    def film(self, policy: Policy, opt_steps: int) -> Film | None:
        interval, factory = self.config.video_interval, self._film_factory
        if not interval or factory is None or opt_steps // interval == self._filmed:
            return None
        self._filmed = opt_steps // interval
        try:
            return Film(gif=self._clip(policy, factory))
        except Exception as error:  # environments, drivers and encoders may raise anything
            self._stop.check()
            return Film(problem=str(error) or repr(error))

    def _clip(self, policy: Policy, factory: EnvFactory) -> bytes:
        """The first episode, shortened where it is long."""
        from border_cli.evaluator.film import CLIP_FRAMES, FilmedFactory, GifWriter

        made = io.BytesIO()
        with self._heartbeat.working(), GifWriter(made, most_frames=CLIP_FRAMES) as writer:
            filmed = FilmedFactory(factory, episode=0, writer=writer)
            with closing(filmed.make(training=False)) as env:
                self._play(policy, env)
        return made.getvalue()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with self._heartbeat.working():
                yield
        except BadStep as error:
            raise error.within("evaluation") from None
        except SystemExit as error:  # it would end the command with a status of its choice
            what = f"evaluation: the environment called sys.exit({error.code!r})"
            raise RunFailed(what, f"\n{traceback.format_exc().strip()}") from error

    def _play(self, policy: Policy, env: Env) -> Outcome:
        """One episode in each environment."""
        limit, names = self.limit[0], self.info_metrics
        play = Play(policy, env, seed=self._seed, limit=limit, names=names)
        while play.running:
            self._stop.check()
            self._heartbeat.beat()
            play.step()
        return play.outcome

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _made(self, first: int = 0) -> Env:
        env = self._factory.make(training=False, first=first, beat=self._heartbeat.beat)
        assert env.num_envs == self.config.num_episodes, "one episode per environment"
        return env
