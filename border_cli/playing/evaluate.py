"""Episodes of a saved model: for a score, in a window, or as a film."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

from border_cli.core.interfaces import EnvFactory, Evaluation, Policy
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.evaluator.episodes import join_evaluations
from border_cli.evaluator.film import ShownFactory, film_writer
from border_cli.launch.build import build_evaluator
from border_cli.launch.effective import EffectiveSettings
from border_cli.messages import report
from border_cli.registry import ENVS


def play(
    effective: EffectiveSettings,
    policy: Policy,
    stop: StopFlag,
    *,
    seed: int | None,
    rounds: int,
    render: str | None = None,
    video: Path | None = None,
) -> Evaluation:
    """Plays `rounds` times `num_episodes` episodes: in parallel, or one at a time in a window or
    for a film. The film appears at `video` only when it is complete."""
    if render is None and video is None:
        return _evaluate(effective, policy, stop, seed, rounds)
    one_episode = effective.with_episodes(1)
    env_factory: EnvFactory = ENVS.build(one_episode.evaluation_env)
    evaluations = []
    with ExitStack() as stack:
        writer = stack.enter_context(closing(film_writer(video))) if video is not None else None
        episodes = rounds * effective.config.evaluator.num_episodes
        for episode in range(episodes):
            report(f"{episode} of {episodes} episodes played")
            shown_factory = ShownFactory(env_factory, episode=episode, writer=writer)
            evaluations.append(_evaluate(one_episode, policy, stop, seed, 1, shown_factory))
        if writer is not None:
            writer.save()
    return join_evaluations(one_episode.evaluator, env_factory.spec, evaluations)


def _evaluate(
    effective: EffectiveSettings,
    policy: Policy,
    stop: StopFlag,
    seed: int | None,
    rounds: int,
    factory: EnvFactory | None = None,
) -> Evaluation:
    new_evaluator = build_evaluator(
        effective, seed=seed, stop=stop, heartbeat=Heartbeat("evaluation"), factory=factory
    )
    with closing(new_evaluator) as evaluator:
        evaluation = evaluator.evaluate(policy)
        for _ in range(rounds - 1):
            evaluation = evaluator.extend(policy, evaluation)
        return evaluation
