"""Evaluation on a Ray cluster, with the episodes spread over its nodes.

The evaluation's child process (`run`) connects to the cluster and creates a crew of workers
(`ray/crew.py`). Each worker plays some of the episodes, with the same seeds as in a local
evaluation and with actions computed for a batch of the same size. On processors of the same type,
the scores are therefore bit-identical to those of a local evaluation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import ActorManager, Env, Evaluation, Evaluator, Policy
from border_cli.core.stop import StopFlag
from border_cli.core.types import Array, Snapshot, map_array, num_rows
from border_cli.errors import BadStep, RunFailed
from border_cli.evaluator.background_runner import DONE, BackgroundEvaluationRunner, SharedHeartbeat
from border_cli.evaluator.config import EpisodesConfig
from border_cli.evaluator.episodes import GreedyEpisodes, join_evaluations
from border_cli.evaluator.runner import Confirmation, EpisodesRecipe, EvaluationParts
from border_cli.ray.connection import (
    ClusterSettings,
    connect,
    refuse_unreachable,
    refuse_without_ray,
)
from border_cli.ray.crew import GOING, Crew, WorkerLost
from border_cli.ray.nodes import ClusterNeeds, check_nodes, options_of
from border_cli.ray.remote import add_import_path, import_path, log_printed_lines, total_cpus
from border_cli.ray.travel import find_own_modules
from border_cli.system.child import READY, Pipe
from border_cli.system.shared_memory import SharedArrays
from border_cli.system.start import modules_of_recipe, pack, unpack

log = logging.getLogger(__name__)

SETTING: Final = "evaluator.where=ray"
ADDRESS: Final = "evaluator.address"
SLICE_S: Final = 1.0  # seconds after which a worker replies, even if it has not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """The range of episodes of a round that one worker plays."""

    round_first: int  # number of the first episode of the round
    first: int  # index of the worker's first episode within the round
    count: int


class PaddedPolicy(Policy):
    """A policy that acts in some environments of an evaluation exactly as it would in all of them.

    The numbers that a math library computes for a row depend on the number of rows. The batch is
    therefore padded to its full width with the given observations, and the extra actions are
    discarded.
    """

    def __init__(self, inner: Policy, first: int, width: int) -> None:
        """`first`: index of the first environment; `width`: number of all environments."""
        self._inner = inner
        self._first, self._width = first, width

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        count = num_rows(obs)
        rows = (np.arange(self._width) - self._first) % count
        wide = map_array(lambda leaf: leaf[rows], obs)
        return self._inner.act(wide, explore=explore)[self._first : self._first + count]

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self._inner.load_snapshot(snapshot)

    def forget(self, envs: Sequence[int]) -> None:
        """Forgets all environments, because their episodes start together."""
        del envs
        self._inner.forget(range(self._width))


class EpisodePlayer:
    """A Ray actor that plays the same episodes of each round, in slices of a second."""

    def __init__(self, packed: bytes, import_path: Sequence[str], slice_s: float = SLICE_S) -> None:
        """`import_path`: the module search path of the learner's machine."""
        add_import_path(import_path)
        self._recipe: EpisodesRecipe = unpack(packed)
        self._slice_s = slice_s
        self._cached: tuple[int, int, Env] | None = None  # (first, count, environment)
        self._play: GreedyEpisodes | None = None

    def take(self, piece: Episodes, snapshot: Snapshot) -> Any:
        """Starts these episodes; returns an `Evaluation`, or `GOING`."""
        recipe = self._recipe
        policy = recipe.make_policy()
        policy.bind_thread()
        policy.load_snapshot(snapshot)
        self._play = GreedyEpisodes(
            PaddedPolicy(policy, piece.first, recipe.config.num_episodes),
            self._get_env(piece),
            config=recipe.config,
            spec=recipe.spec,
            seed=recipe.seed,
            decided_limit=snapshot.episode_limit,
        )
        return self.go_on()

    def _get_env(self, piece: Episodes) -> Env:
        first = piece.round_first + piece.first
        if self._cached is None or self._cached[:2] != (first, piece.count):
            self.close()
            env = self._recipe.make_factory(piece.count).make(training=False, first=first)
            self._cached = (first, piece.count, env)
        return self._cached[2]

    def go_on(self) -> Any:
        """Continues for one slice; returns an `Evaluation`, or `GOING`."""
        play = self._play
        assert play is not None, "take() comes first"
        until_s = time.monotonic() + self._slice_s
        while play.running:
            play.step()
            if time.monotonic() > until_s:
                return GOING
        return play.evaluation

    def close(self) -> None:
        """Closes the environments. Not required if the process is killed."""
        cached, self._cached = self._cached, None
        if cached is not None:
            cached[2].close()


class SpreadEvaluator(Evaluator):
    """An evaluator whose crew plays the episodes; owned by the evaluation's child process.

    It ignores the policies passed to it: the workers build theirs from the last loaded snapshot.
    """

    def __init__(self, recipe: EpisodesRecipe, crew: Crew, size: int) -> None:
        """`size`: number of workers in the crew, and of pieces per evaluation."""
        self._config, self._spec = recipe.config, recipe.spec
        self._crew = crew
        count = recipe.config.num_episodes
        bounds = [count * i // size for i in range(size + 1)]
        self._pieces = [(low, high - low) for low, high in pairwise(bounds)]
        self._snapshot: Snapshot | None = None

    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Sets the weights for later evaluations."""
        self._snapshot = snapshot

    def evaluate(self, policy: Policy) -> Evaluation:
        del policy
        return self._play_round(0)

    def extend(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        del policy
        more = self._play_round(len(evaluation.returns))
        return join_evaluations(self._config, self._spec, [evaluation, more])

    def _play_round(self, first: int) -> Evaluation:
        """Plays the episodes of one evaluation, starting with number `first`."""
        assert self._snapshot is not None, "load_snapshot() comes first"
        pieces = [
            Episodes(round_first=first, first=low, count=count) for low, count in self._pieces
        ]
        try:
            evaluations: list[Evaluation] = self._crew.run(pieces, self._snapshot)
        except BadStep as error:
            raise error.within("evaluation") from None
        return join_evaluations(self._config, self._spec, evaluations)

    def close(self) -> None:
        self._crew.close()


class ClusterEvaluationRunner(BackgroundEvaluationRunner):
    """A runner that spreads each evaluation over a Ray cluster, its own or that of the actors."""

    @staticmethod
    def refuse_missing(config: EpisodesConfig) -> None:
        """Raises an error if Ray is not installed or the address accepts no connections."""
        refuse_without_ray(SETTING)
        refuse_unreachable(ClusterSettings(address=config.address, setting=ADDRESS))

    @classmethod
    def of(cls, parts: EvaluationParts) -> Self:
        """Builds the runner of a run."""
        recipe, cluster = parts.episodes, None
        assert recipe is not None, "this evaluator plays episodes"
        address = recipe.config.address
        if address is not None or parts.actors != "ray":
            modules = {*recipe.imports, *parts.modules, *modules_of_recipe(recipe)}
            cluster = ClusterSettings(
                address=address,
                setting=ADDRESS,
                modules=find_own_modules(modules) if address else (),
            )
        return cls(
            recipe,
            cluster=cluster,
            trial=parts.trial,
            stop=parts.stop,
            confirmation=parts.confirmation,
        )

    def __init__(
        self,
        recipe: EpisodesRecipe,
        *,
        cluster: ClusterSettings | None,
        trial: Callable[[], object],
        stop: StopFlag,
        confirmation: Confirmation = Confirmation(),  # noqa: B008 - immutable
    ) -> None:
        """`cluster`: the cluster to join or start, whose nodes must pass the trial. None means the
        cluster of the actors, whose nodes have already passed a trial."""
        packed_trial = None if cluster is None else pack(SETTING, recipe.imports, trial)
        packed = pack(SETTING, recipe.imports, (recipe, confirmation, packed_trial))
        super().__init__(packed, stop=stop, main=run)
        self._players = pack(SETTING, recipe.imports, recipe)
        self._cluster = cluster
        self._actors: ActorManager | None = None

    def open(self, actors: ActorManager | None = None) -> None:
        self._actors = actors
        if self._cluster is not None:  # otherwise the cluster exists only after the actors start
            super().open()

    def _arguments(self) -> tuple[Any, ...]:
        cluster = self._cluster or (self._actors.cluster if self._actors is not None else None)
        if not isinstance(cluster, ClusterSettings):
            raise RunFailed("evaluator.where=ray: the actors are not connected to a Ray cluster")
        return *super()._arguments(), self._players, cluster


def run(
    packed: bytes, players: bytes, cluster: ClusterSettings, shared: SharedArrays, pipe: Pipe
) -> None:
    """Runs the process: evaluates each received snapshot until the learner closes the pipe."""
    recipe, confirmation, trial = unpack(packed)
    config: EpisodesConfig = recipe.config
    log_printed_lines()
    with connect(cluster):
        if trial is not None:
            needs = ClusterNeeds(
                setting=SETTING,
                group="evaluator",
                resources=config.resources,
                trial=trial,
            )
            check_nodes(cluster, needs)
        size = min(config.num_episodes, config.num_workers or total_cpus())
        heartbeat = SharedHeartbeat(shared)
        crew = Crew(
            EpisodePlayer,
            (players, import_path()),
            size=size,
            name=f"border/{recipe.run_name}/evaluation",
            options=options_of(config.resources),
            beat=heartbeat.beat,
        )
        heartbeat.beat()
        pipe.send(READY)
        with closing(SpreadEvaluator(recipe, crew, size)) as evaluator:
            policy = recipe.make_policy()
            while True:
                try:
                    snapshot = pipe.receive()
                except EOFError:
                    return
                evaluator.load_snapshot(snapshot)
                try:
                    pipe.send(DONE, confirmation.evaluate(evaluator, policy, snapshot))
                except WorkerLost as error:  # the runner then starts a new process
                    log.warning("a worker on the cluster is lost: %s", error)
                    return
