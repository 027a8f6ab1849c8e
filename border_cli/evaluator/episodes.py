"""Evaluation by episodes, all in parallel in one vector of environments."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter

import numpy as np

from border_cli.core.interfaces import Env, EnvFactory, Evaluation, Evaluator, Film, Policy
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.errors import BadStep, RunFailed
from border_cli.evaluator.config import EpisodesConfig
from border_cli.settings.run import EvaluatorConfig
from border_cli.words import pluralize

DEFAULT_LIMIT = 10_000  # env steps, if no other limit exists


def known_limit(config: EvaluatorConfig, spec: EnvSpec) -> tuple[int, str] | None:
    """Returns the maximum env steps of an episode and the source of this limit; None if neither the
    settings nor the environment have one."""
    sources = (
        (spec.max_episode_steps, "from the env"),
        (config.max_episode_steps, "evaluator.max_episode_steps"),
    )
    limits = [(steps, source) for steps, source in sources if steps is not None]
    return min(limits, key=itemgetter(0), default=None)


def episode_limit(config: EvaluatorConfig, spec: EnvSpec, decided: int | None = None) -> int:
    """Returns the maximum env steps of an episode; `decided` applies if no limit is set."""
    limit = known_limit(config, spec)
    return limit[0] if limit is not None else decided or DEFAULT_LIMIT


def evaluation_of(
    config: EvaluatorConfig,
    spec: EnvSpec,
    returns: Sequence[float],
    lengths: Sequence[int],
    info: Mapping[str, tuple[float, ...]],
) -> Evaluation:
    """Computes the result of these episodes, with the population standard deviation.

    `info` has one value per episode, for every requested name that all episodes report.
    """
    finite = bool(np.isfinite(returns).all())
    # fsum rounds once: twenty episodes of 0.9 have a mean of 0.9.
    score = math.fsum(returns) / len(returns) if finite else float(np.mean(returns))
    metrics = {
        "eval/return": score,
        "eval/return_std": float(np.std(returns)) if finite else math.nan,
        "eval/return_min": float(np.min(returns)),
        "eval/return_max": float(np.max(returns)),
        "eval/length": float(np.mean(lengths)),
        **{f"eval/{name}": float(np.mean(values)) for name, values in info.items()},
    }
    references = {  # returns that map to 0 and 100 (Fu et al. 2020, "D4RL")
        "eval/normalized_score": (config.ref_min_score, config.ref_max_score),
        "eval/human_normalized": spec.human_scores or (None, None),
    }
    for name, (low, high) in references.items():
        if low is not None and high is not None:
            metrics[name] = 100 * (score - low) / (high - low)
    return Evaluation(
        score=score, returns=tuple(returns), lengths=tuple(lengths), metrics=metrics, info=info
    )


def join_evaluations(
    config: EvaluatorConfig, spec: EnvSpec, parts: Sequence[Evaluation]
) -> Evaluation:
    """Joins evaluations into one, with their episodes in this order."""
    names = [name for name in parts[0].info if all(name in part.info for part in parts)]
    return evaluation_of(
        config,
        spec,
        [score for part in parts for score in part.returns],
        [length for part in parts for length in part.lengths],
        {name: tuple(value for part in parts for value in part.info[name]) for name in names},
    )


class GreedyEpisodes:
    """One greedy episode in each of E environments, up to its end or the episode limit."""

    def __init__(
        self,
        policy: Policy,
        env: Env,
        *,
        config: EpisodesConfig,
        spec: EnvSpec,
        seed: int,
        decided_limit: int | None = None,
    ) -> None:
        self._policy, self._env = policy, env
        self._config, self._spec = config, spec
        self._limit = episode_limit(config, spec, decided_limit)
        self._returns = np.zeros(env.num_envs)  # [E] float64
        self._lengths = np.zeros(env.num_envs, np.int64)  # [E]
        self._info = np.full((len(spec.info_metrics), env.num_envs), np.nan)  # [names, E]
        self._running = np.ones(env.num_envs, np.bool_)  # [E]
        self._obs = env.reset(seed)  # [E, …]
        policy.forget(range(env.num_envs))
        self.steps = 0

    @property
    def running(self) -> bool:
        """True while an episode is running."""
        return self.steps < self._limit and bool(self._running.any())

    @property
    def evaluation(self) -> Evaluation:
        """The result of the episodes. An episode cut off at the limit has no `info` values."""
        info = {
            name: tuple(values.tolist())
            for name, values in zip(self._spec.info_metrics, self._info, strict=True)
            if not np.isnan(values).any()
        }
        returns, lengths = self._returns.tolist(), self._lengths.tolist()
        return evaluation_of(self._config, self._spec, returns, lengths, info)

    def step(self) -> None:
        """Acts once in each environment."""
        step = self._env.step(self._policy.act(self._obs, explore=False))
        self._returns += step.reward  # 0 once the episode is over
        self._lengths += self._running
        ended = step.terminated | step.truncated  # [E]
        if step.episodes:
            for i, episode in zip(np.flatnonzero(ended).tolist(), step.episodes, strict=True):
                self._info[:, i] = episode.metrics or np.nan
                self._returns[i] = episode.score  # computed before rewards were rounded to float32
        self._running &= ~ended
        self._obs = step.act_obs
        self.steps += 1


class EpisodesEvaluator(Evaluator):
    """An evaluator that runs one greedy episode in each environment of a vector, which it owns.

    The environments are created at the first evaluation and reused. Called by one thread: that of
    the learner or of the evaluation process.
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
        """`film_factory` creates the single environment of a filmed episode; None if no films are
        due."""
        self.config = config
        self._film_factory = film_factory
        self._factory = factory
        self._seed = seed
        self._stop = stop
        self._heartbeat = heartbeat
        self._env: Env | None = None
        self._decided_limit: int | None = None
        self._filmed = 0  # number of the last interval with a film

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit of the environment."""
        return self._factory.spec

    def describe(self) -> str:
        config = self.config
        limit = known_limit(config, self.spec)
        limit_text = "decided by the first training episodes (the env has none)"
        if limit is not None:
            limit_text = f"{pluralize(limit[0], 'step')} ({limit[1]})"
        line = f"{pluralize(config.num_episodes, 'episode')}, episode limit {limit_text}"
        if config.ref_min_score is None:
            return line
        low, high = config.ref_min_score, config.ref_max_score
        return f"{line}; normalized score: 0 at return {low:g}, 100 at return {high:g}"

    @property
    def needs_episode_limit(self) -> bool:
        return known_limit(self.config, self.spec) is None

    def limit_episodes(self, steps: int) -> None:
        self._decided_limit = steps

    def evaluate(self, policy: Policy) -> Evaluation:
        """Runs the episodes of this seed with the greedy actions of `policy`."""
        with self._watched():
            self._env = self._env or self._make_env()
            return self._play(policy, self._env)

    def extend(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """Adds the next episodes of this seed. The result equals that of one evaluation with more
        environments."""
        with self._watched(), closing(self._make_env(first=len(evaluation.returns))) as env:
            extension = self._play(policy, env)
        return join_evaluations(self.config, self.spec, [evaluation, extension])

    def film(self, policy: Policy, opt_steps: int) -> Film | None:
        interval, factory = self.config.video_interval, self._film_factory
        if factory is None or opt_steps // interval == self._filmed:
            return None
        self._filmed = opt_steps // interval
        try:
            return Film(gif=self._clip(policy, factory))
        except Exception as error:  # environments, drivers and encoders may raise anything
            self._stop.check()
            return Film(problem=str(error) or repr(error))

    def _clip(self, policy: Policy, factory: EnvFactory) -> bytes:
        """Records a film of the first episode. If it is long, leaves out frames in between."""
        from border_cli.evaluator.film import CLIP_FRAMES, FilmedEnv, GifWriter

        writer = GifWriter(most_frames=CLIP_FRAMES)
        with self._heartbeat.working():
            env = factory.make(training=False, render="rgb_array")
            with closing(FilmedEnv(env, writer, episode=0)) as filmed:
                self._play(policy, filmed)
            return writer.encoded()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with self._heartbeat.working():
                yield
        except BadStep as error:
            raise error.within("evaluation") from None
        except SystemExit as error:  # would end the command with an arbitrary exit status
            message = f"evaluation: the environment called sys.exit({error.code!r})"
            raise RunFailed(message, f"\n{traceback.format_exc().strip()}") from error

    def _play(self, policy: Policy, env: Env) -> Evaluation:
        """Runs one episode in each environment."""
        play = GreedyEpisodes(
            policy,
            env,
            config=self.config,
            spec=self.spec,
            seed=self._seed,
            decided_limit=self._decided_limit,
        )
        while play.running:
            self._stop.check()
            self._heartbeat.beat()
            play.step()
        return play.evaluation

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def _make_env(self, first: int = 0) -> Env:
        _ = self.spec  # may construct an environment, so not beside another: some allow only one
        env = self._factory.make(training=False, first=first, beat=self._heartbeat.beat)
        assert env.num_envs == self.config.num_episodes, "one episode per environment"
        return env
