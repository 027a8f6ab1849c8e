"""Episodes that several workers play are to the bit those of one evaluation, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from spreading import Evaluated, evaluated

from border_cli.cluster.crew import Crew
from border_cli.core.interfaces import Confirmation, Evaluation
from border_cli.core.timing import MonotonicClock
from border_cli.evaluator.spread import EpisodePlayer, SpreadEvaluator, home
from border_cli.process.start import pack


class Here:
    """A transport whose workers are objects of this process."""

    def __init__(self, packed: bytes, slice_s: float) -> None:
        self._packed, self._slice_s = packed, slice_s
        self._answers: dict[int, Any] = {}

    def put(self, value: Any) -> Any:
        return value

    def start(self) -> EpisodePlayer:
        return EpisodePlayer(self._packed, home(), self._slice_s)

    def call(self, worker: EpisodePlayer, method: str, *arguments: Any) -> int:
        number = max(self._answers, default=0) + 1
        self._answers[number] = getattr(worker, method)(*arguments)
        return number

    def answers(self, calls: Sequence[int], timeout_s: float) -> list[tuple[int, Any]]:
        del timeout_s
        return [(call, self._answers[call]) for call in calls]

    def kill(self, worker: EpisodePlayer) -> None:
        worker.close()


THREE_ROUNDS = Confirmation(-1e9, 2)


def spread(run: Evaluated, size: int, slice_s: float) -> Evaluation:
    recipe = run.recipe()
    transport = Here(pack("evaluator.where=ray", [], recipe), slice_s)
    crew = Crew(transport, size, stall_s=60, clock=MonotonicClock(), beat=lambda: None)
    evaluator = SpreadEvaluator(recipe, crew, size)
    evaluator.load_snapshot(run.snapshot)
    evaluation = THREE_ROUNDS.evaluated(evaluator, recipe.make_policy())
    evaluator.close()
    return evaluation


@pytest.mark.parametrize(
    ("agent", "env", "size", "slice_s"),
    [
        ("sac", "pendulum", 2, 1.0),
        ("sac", "pendulum", 5, 1.0),  # a single row is computed otherwise
        ("sac", "pendulum", 3, 0.0),  # an answer after every step
        ("random", "cartpole", 3, 1.0),  # draws random numbers, also in the rounds that follow
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
    assert spread(run, size, slice_s) == expected
