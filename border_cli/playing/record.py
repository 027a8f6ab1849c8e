"""Recording of episodes of saved models as a Minari data set.

The episodes are played greedily or with exploration, in the environment of evaluations. Each is
recorded with its seed. The data set is written under a hidden name and renamed at the end. The
reference scores are the mean return of 100 episodes of random actions and the best recorded score
of the run. With such a score, they are the same for all data sets of the run.
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
from border_cli.core.types import Array, Step, combine_arrays
from border_cli.dataset.minari_files import DatasetWriter, EnvParts, RawEpisode
from border_cli.dataset.recorded_episodes import RecordedEpisode
from border_cli.env.config import GymConfig
from border_cli.env.translate import raw_parts, recorded_rows
from border_cli.errors import ConfigError
from border_cli.evaluator.episodes import episode_limit
from border_cli.launch.build import build_evaluator
from border_cli.launch.effective import EffectiveSettings
from border_cli.playing.players import RANDOM, Player, random_agent, split_amount
from border_cli.registry import AGENTS, ENVS
from border_cli.settings.run import EnvConfig

RECORDING, REFERENCE, EXPLORING = 2, 3, 4  # seed paths below Branch.EVALUATION
PARALLEL_EPISODES = 16
PARALLEL_NBYTES = 512 * 2**20  # limit on stored observations of parallel episodes
REFERENCE_EPISODES = 100  # episodes of random actions; their mean return is score 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerResult:
    """Returns and lengths of the episodes of one player."""

    name: str
    opt_steps: int | None  # age of the weights in updates; None for random actions
    returns: NDArray[np.float64]  # [E]
    lengths: NDArray[np.int64]  # [E]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A finished data set. `references` is None if the run is no better than random actions."""

    played: Sequence[PlayerResult]
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
) -> Recording:
    """Plays all episodes and writes the data set, which appears only when it is complete.

    `best` is the recorded score of the best model, or None if there is none in this environment. If
    `stop` is requested, raises its reason between two env steps.
    """
    env = _env_parts(effective.evaluation_env)
    with DatasetWriter(dataset, env, overwrite=overwrite) as writer:
        played = []
        for number, player in enumerate(players):
            rounds = _play_all(effective, player, stop, seed=seed, number=number, explore=explore)
            played.append(_write(writer, env, player, rounds))
        references = _references(effective, played, stop, best)
        writer.finish(_metadata(effective, played, references))
    return Recording(played=played, references=references)


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
) -> PlayerResult:
    """Writes the episodes of one player while they are played."""
    returns: list[float] = []
    lengths: list[int] = []
    for episodes in rounds:
        writer.add([_raw_episode(episode, env) for episode in episodes], policy=player.name)
        returns += [episode.score for episode in episodes]
        lengths += [len(episode) for episode in episodes]
    return PlayerResult(
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
    """Yields all episodes of player `number`. With exploration they are split over the actors of
    the run, which may explore differently."""
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
    """Yields rounds of parallel episodes: `amount` episodes in all, or enough for `amount`
    steps."""
    factory: EnvFactory = ENVS.build(effective.evaluation_env)
    spec = factory.spec
    limit = episode_limit(effective.config.evaluator, spec)
    cap = max(1, min(PARALLEL_EPISODES, PARALLEL_NBYTES // (limit * row_nbytes(spec.observation))))
    parallel = math.ceil(amount / math.ceil(amount / cap))
    factory = ENVS.build(replace(effective.evaluation_env, num_envs=parallel))
    with closing(factory.make(training=False)) as env:
        for number in count():
            round_seed = derived_seed(seed, number)
            episodes = play_round(env, policy, round_seed, stop, limit=limit, explore=explore)
            for last, episode in enumerate(episodes, 1):
                amount -= len(episode) if in_steps else 1
                if amount <= 0:
                    yield episodes[:last]  # the last round may play more than needed
                    return
            yield episodes


def _raw_episode(episode: PlayedEpisode, env: EnvParts) -> RawEpisode:
    """Converts an episode to the form that a data set stores."""
    return RawEpisode(
        seed=episode.seed,
        observations=recorded_rows(env.observation_space, episode.obs),
        actions=recorded_rows(env.action_space, episode.action),
        rewards=episode.reward.astype(np.float64),
        terminations=episode.terminated,
        truncations=episode.truncated,
    )


def _references(
    effective: EffectiveSettings, played: Sequence[PlayerResult], stop: StopFlag, best: float | None
) -> tuple[float, float] | None:
    """Returns the mean return of random actions, evaluated like the models of the run, and `best`.
    If `best` is None, the best mean return of the players replaces it.

    Otherwise, the result does not depend on the players, nor on the seed of the recording.
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
    high = max(float(player.returns.mean()) for player in played) if best is None else best
    return (low, high) if high > low else None


def _metadata(
    effective: EffectiveSettings,
    played: Sequence[PlayerResult],
    references: tuple[float, float] | None,
) -> dict[str, Any]:
    """Returns metadata by Minari's conventions, with the names of the players."""
    config, env_id = effective.config, effective.evaluation_env.id
    counts = ", ".join(f"{len(player.returns)} by {player.name}" for player in played)
    metadata = {
        "algorithm_name": AGENTS.entry_of(config.agent).name,
        "code_permalink": f"border-cli=={__version__}",
        "description": f"Episodes of {env_id} from the run {config.name}: {counts}",
        "run_name": config.name,
    }
    if references is None:
        return metadata
    low, high = references
    count = {"num_episodes_average_score": REFERENCE_EPISODES}
    return metadata | {"ref_min_score": low, "ref_max_score": high, **count}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode(RecordedEpisode):
    """An episode that a policy has just played."""

    seed: int  # seed with which its environment was reset

    @property
    def score(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))


def play_round(
    env: Env, policy: Policy, seed: int, stop: StopFlag, *, limit: int, explore: bool
) -> list[PlayedEpisode]:
    """Plays one episode in each parallel environment, for at most `limit` env steps.

    If `stop` is requested, raises its reason between two steps.
    """
    first_obs = env.reset(seed)
    policy.forget(range(env.num_envs))
    steps: list[Step] = []
    running = np.ones(env.num_envs, np.bool_)  # [N]
    lengths = np.zeros(env.num_envs, np.int64)  # [N]
    obs = first_obs
    while running.any() and len(steps) < limit:
        stop.check()
        step = env.step(policy.act(obs, explore=explore))
        steps.append(step)
        lengths += running
        running &= ~(step.terminated | step.truncated)
        obs = step.act_obs
    return [
        _build_episode(first_obs, steps[:length], i, seed)
        for i, length in enumerate(lengths.tolist())
    ]


def _build_episode(first_obs: Array, steps: Sequence[Step], i: int, seed: int) -> PlayedEpisode:
    """Builds the episode of environment `i`. If it did not terminate, it was truncated, by the
    environment or by `limit`."""
    terminated = np.array([step.terminated[i] for step in steps])  # [T]
    truncated = np.zeros(len(steps), np.bool_)  # [T]
    truncated[-1] = not terminated[-1]
    return PlayedEpisode(
        obs=combine_arrays(
            lambda observations: np.stack([obs[i] for obs in observations]),
            [first_obs, *(step.next_obs for step in steps)],
        ),
        action=np.stack([step.action[i] for step in steps]),
        reward=np.array([step.reward[i] for step in steps]),
        terminated=terminated,
        truncated=truncated,
        seed=derived_seed(seed, i, 0),  # seed of the first episode, see `Env.reset`
    )
