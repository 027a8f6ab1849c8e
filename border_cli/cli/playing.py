"""Episodes for a person or a number, outside of any run."""

from __future__ import annotations

from dataclasses import replace

from border_cli.core.config import RunConfig
from border_cli.core.interfaces import Env, EnvFactory, Policy, Translator
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.parts import build_evaluator, evaluation_env_config
from border_cli.registry import ENVS


class Shown(EnvFactory):
    """The environment of one episode of an evaluation, in a window."""

    def __init__(self, inner: EnvFactory, episode: int, render: str) -> None:
        self._inner = inner
        self._episode = episode
        self._render = render

    @property
    def spec(self) -> EnvSpec:
        return self._inner.spec

    def make(self, *, training: bool, render: str | None = None, first: int = 0) -> Env:
        del render, first
        return self._inner.make(training=training, render=self._render, first=self._episode)

    def translator(self) -> Translator:
        return self._inner.translator()


def play(
    config: RunConfig,
    policy: Policy,
    stop: StopFlag,
    *,
    seed: int | None,
    rounds: int,
    render: str | None,
) -> tuple[list[float], list[int]]:
    """Returns and lengths of the episodes: side by side, a round of `num_episodes` after the other,
    or one after another in a window."""
    if render is None:
        return _play(config, policy, stop, seed, rounds)
    one = replace(config, evaluator=replace(config.evaluator, num_episodes=1))
    inner: EnvFactory = ENVS.build(evaluation_env_config(one))
    returns: list[float] = []
    lengths: list[int] = []
    for episode in range(rounds * config.evaluator.num_episodes):
        score, length = _play(one, policy, stop, seed, 1, Shown(inner, episode, render))
        returns += score
        lengths += length
    return returns, lengths


def _play(
    config: RunConfig,
    policy: Policy,
    stop: StopFlag,
    seed: int | None,
    rounds: int,
    factory: EnvFactory | None = None,
) -> tuple[list[float], list[int]]:
    evaluator = build_evaluator(
        config, seed=seed, stop=stop, heartbeat=Heartbeat("evaluation"), factory=factory
    )
    try:
        evaluation = evaluator.evaluate(policy)
        for _ in range(rounds - 1):
            evaluation = evaluator.extended(policy, evaluation)
    finally:
        evaluator.close()
    return list(evaluation.returns), list(evaluation.lengths)
