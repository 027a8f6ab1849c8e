"""Plays the models of a run and keeps what happened as a Minari data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli import __version__
from border_cli.api import load_agent, opened, read_config
from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Agent, EnvFactory, Policy
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import row_nbytes
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import PAST_SCHEDULES, Snapshot
from border_cli.dataset.playing import PlayedEpisode, play_round
from border_cli.dataset.reading import RawEpisode
from border_cli.dataset.writing import DatasetWriter, EnvParts
from border_cli.env.config import GymConfig
from border_cli.env.recorded import raw_parts, recorded_rows
from border_cli.evaluator.episodes import DEFAULT_LIMIT
from border_cli.parts import build_evaluator, env_factory
from border_cli.registry import AGENTS, ENVS
from border_cli.run.checkpoint_files import read_json
from border_cli.run.finding import best_score, find_checkpoint

RANDOM = "random"
RECORDING, REFERENCE, EXPLORING = 2, 3, 4  # paths below Branch.EVALUATION: seeds of their own
SIDE_BY_SIDE = 16  # episodes
SIDE_NBYTES = 512 * 2**20  # of observations that are kept until the longest of them is over
REFERENCE_EPISODES = 100  # of random actions, whose mean return counts as 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A policy, and how many episodes it plays."""

    name: str  # best, latest, an optimisation step, or random
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What shall be recorded."""

    run_dir: Path
    dataset: str
    players: Sequence[Player]
    seed: int | None = None  # None: that of the run
    explore: bool = False
    overwrite: bool = False
    trust: bool = False  # see `load_policy`


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one player."""

    name: str
    opt_steps: int | None  # of its weights; None for random
    returns: NDArray[np.float64]  # [E]
    lengths: NDArray[np.int64]  # [E]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded; the references are missing where the run is no better than chance."""

    config: RunConfig
    played: Sequence[Played]
    references: tuple[float, float] | None


def shared_out(episodes: int, weights: Sequence[float]) -> list[int]:
    """So many episodes in these shares; what is left over goes to the largest remainders."""
    exact = [episodes * weight / math.fsum(weights) for weight in weights]
    counts = [int(each) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: episodes - sum(counts)]:
        counts[i] += 1
    return counts


def record(order: Order, stop: StopFlag, on_begin: Callable[[RunConfig], None]) -> Recorded:
    """Plays all episodes and writes the data set, which is there at the end or not at all.

    `on_begin` is told the settings of the run. Raises the reason of `stop` between two env steps.
    """
    with opened(order.run_dir, trust=order.trust):
        config = read_config(order.run_dir, trust=order.trust)
        on_begin(config)
        return _record(order, config, stop)


def _record(order: Order, config: RunConfig, stop: StopFlag) -> Recorded:
    env = _env_parts(config)
    loaded = [_load(order, config, each.name) for each in order.players]
    with DatasetWriter(order.dataset, env, overwrite=order.overwrite) as writer:
        played = []
        for number, player in enumerate(order.players):
            agent, snapshot = loaded[number]
            rounds = _play(config, order, number, agent, snapshot, stop)
            opt_steps = None if player.name == RANDOM else agent.opt_steps
            played.append(_write(writer, env, player.name, opt_steps, rounds))
        references = _references(order.run_dir, config, played, stop)
        writer.finish(_metadata(config, played, references))
    return Recorded(config=config, played=played, references=references)


def _env_parts(config: RunConfig) -> EnvParts:
    if not isinstance(config.env, GymConfig):
        raise ConfigError(
            "border-record needs a Gymnasium environment, whose spaces Minari can store; got "
            f"env={ENVS.entry_of(config.env).name}"
        )
    observation_space, action_space, spec = raw_parts(config.env)
    return EnvParts(observation_space=observation_space, action_space=action_space, spec=spec)


def _write(
    writer: DatasetWriter,
    env: EnvParts,
    name: str,
    opt_steps: int | None,
    rounds: Iterable[list[PlayedEpisode]],
) -> Played:
    """Adds what one player plays, as it is played."""
    returns: list[float] = []
    lengths: list[int] = []
    for episodes in rounds:
        writer.add([(_raw(each, env), each.seed) for each in episodes], policy=name)
        returns += [each.score for each in episodes]
        lengths += [len(each) for each in episodes]
    return Played(
        name=name, opt_steps=opt_steps, returns=np.array(returns), lengths=np.array(lengths)
    )


def _load(order: Order, config: RunConfig, name: str) -> tuple[Agent, Snapshot]:
    """An agent, and its weights with the exploration that it had when it was saved."""
    if name == RANDOM:
        agent = _random_agent(config)
        return agent, agent.snapshot()
    agent = load_agent(order.run_dir, name, trust=order.trust)[1]
    if config.init_from is not None or config.trainer.offline:
        return agent, agent.snapshot(env_steps=PAST_SCHEDULES)
    counters = read_json(find_checkpoint(order.run_dir, name) / "state.json")
    return agent, agent.snapshot(env_steps=int(counters["env_steps"]))


def _random_agent(config: RunConfig) -> Agent:
    random = AGENTS.entry(RANDOM).config_type(gamma=config.agent.gamma)
    agent: Agent = AGENTS.build(
        random, spec=env_factory(config).spec, device=config.device.value, seed=config.seed
    )
    return agent


def _play(
    config: RunConfig,
    order: Order,
    number: int,
    agent: Agent,
    snapshot: Snapshot,
    stop: StopFlag,
) -> Iterator[list[PlayedEpisode]]:
    """All episodes of the player of this number; those that explore are shared out over the actors
    of the run, which may explore each in its own way."""
    seed = config.seed if order.seed is None else order.seed
    actors = config.actor_manager.num_actors if order.explore else 1
    counts = shared_out(order.players[number].episodes, [1.0] * actors)
    for actor_id, count in enumerate(counts):
        if not count:
            continue
        policy = agent.policy_factory(
            generator(seed, Branch.EVALUATION, EXPLORING, number, actor_id),
            config.actor_manager.exploration_of(actor_id) if order.explore else None,
        )
        policy.load_snapshot(snapshot)
        first = derived_seed(seed, Branch.EVALUATION, RECORDING, number, actor_id)
        yield from _rounds(config, policy, count, first, stop, explore=order.explore)


def _rounds(
    config: RunConfig, policy: Policy, episodes: int, seed: int, stop: StopFlag, *, explore: bool
) -> Iterator[list[PlayedEpisode]]:
    """Several episodes side by side."""
    spec = env_factory(config).spec
    limit = spec.max_episode_steps or DEFAULT_LIMIT
    most = max(1, min(SIDE_BY_SIDE, SIDE_NBYTES // (limit * row_nbytes(spec.observation))))
    rounds = math.ceil(episodes / most)
    beside = math.ceil(episodes / rounds)  # of the last round a few may be too many
    factory: EnvFactory = ENVS.build(replace(config.env, num_envs=beside))
    env = factory.make(training=False)
    try:
        for number in range(rounds):
            place = derived_seed(seed, number)
            played = play_round(env, policy, place, stop, limit=limit, explore=explore)
            yield played[: episodes - number * beside]
    finally:
        env.close()


def _raw(episode: PlayedEpisode, env: EnvParts) -> RawEpisode:
    """As a data set holds it."""
    return RawEpisode(
        number=0,
        observations=recorded_rows(env.observation_space, episode.obs),
        actions=recorded_rows(env.action_space, episode.action),
        rewards=episode.reward.astype(np.float64),
        terminations=episode.terminated,
        truncations=episode.truncated,
    )


def _references(
    run_dir: Path, config: RunConfig, played: Sequence[Played], stop: StopFlag
) -> tuple[float, float] | None:
    """Mean return of random actions, judged as the run judged its models, and the best score of the
    run; where there is none, the best of the means that were just measured.

    The same for every data set of a run, whatever its seed and its players.
    """
    judged = replace(config.evaluator, num_episodes=REFERENCE_EPISODES)
    evaluator = build_evaluator(
        replace(config, evaluator=judged),
        stop=stop,
        heartbeat=Heartbeat("the reference episodes"),
        seed=derived_seed(config.seed, Branch.EVALUATION, REFERENCE),
    )
    agent = _random_agent(config)
    policy = agent.policy_factory(generator(config.seed, Branch.EVALUATION, REFERENCE, 1))
    policy.load_snapshot(agent.snapshot())
    try:
        low = evaluator.evaluate(policy).score
    finally:
        evaluator.close()
    best = best_score(run_dir)
    high = best[0] if best else max(float(each.returns.mean()) for each in played)
    return (low, high) if high > low else None


def _metadata(
    config: RunConfig, played: Sequence[Played], references: tuple[float, float] | None
) -> dict[str, Any]:
    """What Minari's conventions know, and who played."""
    who = ", ".join(f"{len(each.returns)} by {each.name}" for each in played)
    found = {
        "algorithm_name": AGENTS.entry_of(config.agent).name,
        "code_permalink": f"border-cli=={__version__}",
        "description": f"Episodes of {config.env.id} from the run {config.name}: {who}",
        "run_name": config.name,
    }
    if references is None:
        return found
    low, high = references
    count = {"num_episodes_average_score": REFERENCE_EPISODES}
    return found | {"ref_min_score": low, "ref_max_score": high, **count}
