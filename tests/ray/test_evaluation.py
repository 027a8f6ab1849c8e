"""Evaluations split among local workers: bit-identical to a single evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from border_cli.core.interfaces import Evaluation
from border_cli.evaluator.runner import Confirmation
from border_cli.ray.crew import GOING
from border_cli.ray.evaluation import EpisodePlayer, SpreadEvaluator
from border_cli.system.start import pack
from tests.support.spread_evaluations import Evaluated, evaluated


class LocalCrew:
    """A crew whose workers are objects in this process."""

    def __init__(self, packed: bytes, size: int, slice_s: float) -> None:
        self._players = [EpisodePlayer(packed, [], slice_s) for _ in range(size)]

    def run(self, pieces: Sequence[Any], common: Any) -> list[Any]:
        results = []
        for player, piece in zip(self._players, pieces, strict=True):
            result = player.take(piece, common)
            while result == GOING:
                result = player.go_on()
            results.append(result)
        return results

    def close(self) -> None:
        for player in self._players:
            player.close()


THREE_ROUNDS = Confirmation(-1e9, 2)


def evaluate_split(run: Evaluated, size: int, slice_s: float) -> Evaluation:
    recipe = run.recipe()
    crew: Any = LocalCrew(pack("evaluator.where=ray", [], recipe), size, slice_s)
    evaluator = SpreadEvaluator(recipe, crew, size)
    evaluator.load_snapshot(run.snapshot)
    evaluation = THREE_ROUNDS.evaluate(evaluator, recipe.make_policy(), run.snapshot)
    evaluator.close()
    return evaluation


@pytest.mark.parametrize(
    ("agent", "env", "size", "slice_s"),
    [
        ("sac", "pendulum", 2, 1.0),
        ("sac", "pendulum", 5, 1.0),  # a single row is computed differently
        ("sac", "pendulum", 3, 0.0),  # a reply after every step
        ("dqn", "cartpole", 5, 1.0),
    ],
)
def test_episodes_of_several_workers_are_those_of_one_evaluation_to_the_bit(
    agent: str, env: str, size: int, slice_s: float
) -> None:
    run = evaluated(agent, env)
    expected = run.in_one_place(THREE_ROUNDS)
    assert len(expected.returns) == 15
    assert len(set(expected.returns)) > 2
    assert evaluate_split(run, size, slice_s) == expected
