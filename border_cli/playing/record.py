"""Episodes of saved models as a Minari data set.

They are played in the environment of evaluations, greedily or with exploration; the reference
scores are of that environment, too. Each episode has a seed that is recorded with it. The data set
is written under a hidden name, and renamed at the end. The reference scores are the mean return of
100 random episodes, played as in the run's evaluations, and the recorded best score of the run;
they are the same for all data sets of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli import __version__
from border_cli.core.interfaces import Env, EnvFactory, Policy
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import row_nbytes
from border_cli.core.stop import Heartbeat, StopFlag
from border_cli.core.types import Array, Step
from border_cli.dataset.minari_files import DatasetWriter, EnvParts, RawEpisode
from border_cli.dataset.recorded_episodes import RecordedEpisode
from border_cli.env.config import GymConfig
from border_cli.env.translate import raw_parts, recorded_rows
from border_cli.errors import ConfigError
from border_cli.evaluator.episodes import DEFAULT_LIMIT
from border_cli.launch.build import build_evaluator
from border_cli.launch.effective import EffectiveSettings
from border_cli.playing.players import RANDOM, Player, random_agent, split_amount
from border_cli.registry import AGENTS, ENVS
from border_cli.settings.run import EnvConfig

RECORDING, REFERENCE, EXPLORING = 2, 3, 4  # paths below Branch.EVALUATION: seeds of their own
PARALLEL_EPISODES = 16
PARALLEL_NBYTES = 512 * 2**20  # of observations that are kept until the longest of them is over
REFERENCE_EPISODES = 100  # of random actions, whose mean return counts as 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Returns and lengths of the episodes of one player."""

    name: str
    opt_steps: int | None  # of its weights; None for random
    returns: NDArray[np.float64]  # [E]
    lengths: NDArray[np.int64]  # [E]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A data set that was written; without references where the run is no better than chance."""

    played: Sequence[Played]
    references: tuple[float, float] | None


def record(
    effective: EffectiveSettings,
    players: Sequence[Player],
    stop: StopFlag,
    *,
    best: float | None,
    dataset: str,
    seed: int,
    explore: bool,
    overwrite: bool,
) -> Recorded:
    """Plays all episodes and writes the data set, which is there at the end or not at all.

    `best` is the recorded score of the best model, None without one in this environment.
    Raises the reason of `stop` between two env steps.
    """
    env = _env_parts(effective.evaluation_env)
    with DatasetWriter(dataset, env, overwrite=overwrite) as writer:
        played = []
        for number, player in enumerate(players):
            rounds = _play_all(effective, player, stop, seed=seed, number=number, explore=explore)
            played.append(_write(writer, env, player, rounds))
        references = _references(effective, played, stop, best)
        writer.finish(_metadata(effective, played, references))
    return Recorded(played=played, references=references)


def _env_parts(env: EnvConfig) -> EnvParts:
    if not isinstance(env, GymConfig):
        raise ConfigError(
            "border-record needs a Gymnasium environment, whose spaces Minari can store; got "
            f"env={ENVS.entry_of(env).name}"
        )
    observation_space, action_space, spec = raw_parts(env)
    return EnvParts(observation_space=observation_space, action_space=action_space, spec=spec)


def _write(
    writer: DatasetWriter,
    env: EnvParts,
    player: Player,
    rounds: Iterable[list[PlayedEpisode]],
) -> Played:
    """Adds what one player plays, as it is played."""
    returns: list[float] = []
    lengths: list[int] = []
    for episodes in rounds:
        writer.add([_raw(each, env) for each in episodes], policy=player.name)
        returns += [each.score for each in episodes]
        lengths += [len(each) for each in episodes]
    return Played(
        name=player.name,
        opt_steps=None if player.name == RANDOM else player.agent.opt_steps,
        returns=np.array(returns),
        lengths=np.array(lengths),
    )


def _play_all(
    effective: EffectiveSettings,
    player: Player,
    stop: StopFlag,
    *,
    seed: int,
    number: int,
    explore: bool,
) -> Iterator[list[PlayedEpisode]]:
    """All episodes of the player of this number; those that explore are split over the actors
    of the run, each of which may explore in its own way."""
    config = effective.config
    actors = config.actor_manager.most_actors if explore else 1
    for actor_id, amount in enumerate(split_amount(player.amount, [1.0] * actors)):
        if not amount:
            continue
        policy = player.agent.policy_factory(
            generator(seed, Branch.EVALUATION, EXPLORING, number, actor_id),
            config.actor_manager.exploration_of(actor_id) if explore else None,
        )
        policy.load_snapshot(player.snapshot)
        first = derived_seed(seed, Branch.EVALUATION, RECORDING, number, actor_id)
        yield from _rounds(
            effective, policy, amount, first, stop, in_steps=player.unit == "steps", explore=explore
        )


def _rounds(
    effective: EffectiveSettings,
    policy: Policy,
    amount: int,
    seed: int,
    stop: StopFlag,
    *,
    in_steps: bool,
    explore: bool,
) -> Iterator[list[PlayedEpisode]]:
    """This many episodes, or whole episodes with at least this many steps; several in parallel."""
    factory: EnvFactory = ENVS.build(effective.evaluation_env)
    spec = factory.spec
    known = spec.max_episode_steps or effective.config.evaluator.max_episode_steps
    limit = known or DEFAULT_LIMIT
    most = max(1, min(PARALLEL_EPISODES, PARALLEL_NBYTES // (limit * row_nbytes(spec.observation))))
    parallel = math.ceil(amount / math.ceil(amount / most))
    factory = ENVS.build(replace(effective.evaluation_env, num_envs=parallel))
    with closing(factory.make(training=False)) as env:
        for number in count():
            place = derived_seed(seed, number)
            played = play_round(env, policy, place, stop, limit=limit, explore=explore)
            for last, episode in enumerate(played, 1):
                amount -= len(episode) if in_steps else 1
                if amount <= 0:
                    yield played[:last]  # a few may be too many
                    return
            yield played


def _raw(episode: PlayedEpisode, env: EnvParts) -> RawEpisode:
    """As a data set holds it."""
    return RawEpisode(
        seed=episode.seed,
        observations=recorded_rows(env.observation_space, episode.obs),
        actions=recorded_rows(env.action_space, episode.action),
        rewards=episode.reward.astype(np.float64),
        terminations=episode.terminated,
        truncations=episode.truncated,
    )


def _references(
    effective: EffectiveSettings, played: Sequence[Played], stop: StopFlag, best: float | None
) -> tuple[float, float] | None:
    """Mean return of random actions, evaluated as the run evaluated its models, and `best`, or else
    the best of the means that were just measured.

    The same for every data set of a run in its own environment, whatever seed and players.
    """
    seed = effective.config.seed
    evaluator = build_evaluator(
        effective.with_episodes(REFERENCE_EPISODES),
        stop=stop,
        heartbeat=Heartbeat("the reference episodes"),
        seed=derived_seed(seed, Branch.EVALUATION, REFERENCE),
    )
    agent = random_agent(effective)
    policy = agent.policy_factory(generator(seed, Branch.EVALUATION, REFERENCE, 1))
    policy.load_snapshot(agent.snapshot())
    with closing(evaluator):
        low = evaluator.evaluate(policy).score
    high = max(float(each.returns.mean()) for each in played) if best is None else best
    return (low, high) if high > low else None


def _metadata(
    effective: EffectiveSettings,
    played: Sequence[Played],
    references: tuple[float, float] | None,
) -> dict[str, Any]:
    """Metadata by Minari's conventions, and who played."""
    config, env_id = effective.config, effective.evaluation_env.id
    who = ", ".join(f"{len(each.returns)} by {each.name}" for each in played)
    found = {
        "algorithm_name": AGENTS.entry_of(config.agent).name,
        "code_permalink": f"border-cli=={__version__}",
        "description": f"Episodes of {env_id} from the run {config.name}: {who}",
        "run_name": config.name,
    }
    if references is None:
        return found
    low, high = references
    count = {"num_episodes_average_score": REFERENCE_EPISODES}
    return found | {"ref_min_score": low, "ref_max_score": high, **count}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode(RecordedEpisode):
    """One that a policy has just played."""

    seed: int  # that its environment was reset with

    @property
    def score(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))


def play_round(
    env: Env, policy: Policy, seed: int, stop: StopFlag, *, limit: int, explore: bool
) -> list[PlayedEpisode]:
    """One episode in each environment of an evaluation, to its end or to `limit` env steps.

    Raises the reason of `stop` between two of them.
    """
    first = env.reset(seed)
    policy.forget(range(env.num_envs))
    steps: list[Step] = []
    running = np.ones(env.num_envs, np.bool_)  # [N]
    lengths = np.zeros(env.num_envs, np.int64)  # [N]
    obs = first
    while running.any() and len(steps) < limit:
        stop.check()
        step = env.step(policy.act(obs, explore=explore))
        steps.append(step)
        lengths += running
        running &= ~(step.terminated | step.truncated)
        obs = step.act_obs
    return [_of(first, steps[:length], i, seed) for i, length in enumerate(lengths.tolist())]


def _of(first: Array, steps: Sequence[Step], i: int, seed: int) -> PlayedEpisode:
    """The episode of environment i. Without its end it was cut off: by the environment or by us."""
    terminated = np.array([each.terminated[i] for each in steps])  # [T]
    truncated = np.zeros(len(steps), np.bool_)  # [T]
    truncated[-1] = not terminated[-1]
    return PlayedEpisode(
        obs=_column([first, *(each.next_obs for each in steps)], i),
        action=np.stack([each.action[i] for each in steps]),
        reward=np.array([each.reward[i] for each in steps]),
        terminated=terminated,
        truncated=truncated,
        seed=derived_seed(seed, i, 0),  # see `Env.reset`: its first episode
    )


def _column(observations: Sequence[Array], i: int) -> Array:
    """T + 1 times [N, …] -> [T + 1, …]"""
    named = [each for each in observations if isinstance(each, dict)]
    if named:
        return {key: np.stack([each[key][i] for each in named]) for key in named[0]}
    return np.stack([each[i] for each in observations if not isinstance(each, dict)])
