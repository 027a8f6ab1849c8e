"""Learning from a data set alone: the loop without actors, and its settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.none import NoActors
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.types import Transitions
from border_cli.errors import ConfigError, Interrupted
from border_cli.evaluator.runner import InlineEvaluationRunner
from border_cli.trainer.config import OfflineConfig
from border_cli.trainer.recorder_set import RecorderSet
from border_cli.trainer.trainer import LearnerParts, OfflineTrainer
from tests.support.fakes import (
    SPEC,
    FakeAgent,
    FakeClock,
    ListBuffer,
    ListRecorder,
    MemoryCheckpoints,
    ScriptedEvaluator,
)

ROW = Transitions(
    obs=np.zeros((1, 1), np.float32),
    action=np.zeros(1, np.int64),
    reward=np.ones(1, np.float32),
    discount=np.ones(1, np.float32),
    next_obs=np.zeros((1, 1), np.float32),
)


class Built:
    """An offline trainer and its parts. `settings` are those of the trainer."""

    def __init__(self, **settings: Any) -> None:
        config = OfflineConfig(**{"max_opt_steps": 50} | settings)
        clock, actors, buffer = FakeClock(), NoActors(), ListBuffer()
        buffer.push(ROW)
        self.agent, self.stop = FakeAgent(), StopFlag()
        self.recorder, self.checkpoints = ListRecorder(), MemoryCheckpoints()
        self.evaluator = ScriptedEvaluator()
        runner = InlineEvaluationRunner(
            self.evaluator,
            lambda: self.agent.factory(None),  # type: ignore[arg-type]
            Heartbeat("evaluation"),
        )
        self.trainer = OfflineTrainer(
            config,
            parts=LearnerParts(
                agent=self.agent,
                replay_buffer=buffer,
                actors=actors,
                evaluation_runner=runner,
                checkpoints=self.checkpoints,
                recording=RecorderSet([self.recorder]),
                clock=clock,
                stop=self.stop,
                save=SaveFlag(),
            ),
            batch_size=4,
            spec=SPEC,
        )


def test_the_first_step_is_an_update_and_no_env_step_is_ever_made() -> None:
    built = Built()
    built.trainer.step()
    assert built.agent.opt_steps == 1
    assert built.trainer.train() == []
    stats = built.trainer.stats()
    assert (stats.opt_steps, stats.env_steps, stats.samples_total) == (50, 0, 0)
    assert built.trainer.ended_by == "max_opt_steps"


def test_it_evaluates_records_and_saves_as_every_trainer_does() -> None:
    built = Built(eval_interval=20, record_interval=10, save_interval=25)
    built.trainer.train()
    assert built.evaluator.policies == [20, 40, 50]
    assert built.checkpoints.saved == [25, 50]
    assert [step for step, _ in built.recorder.of("train/loss")] == [10, 20, 30, 40, 50]


def test_nothing_is_said_of_actors_and_their_samples() -> None:
    built = Built(record_interval=10)
    built.trainer.train()
    names = {name for _, row, _ in built.recorder.rows for name in row}
    assert "async/opt_steps_per_sec" in names
    assert [name for name in names if "sample" in name and not name.startswith("time")] == []
    assert [name for name in names if name.startswith(("actor/", "episode/"))] == []


def test_no_weights_are_published() -> None:
    built = Built(sync_interval=1)
    built.trainer.train()
    assert built.checkpoints.states[-1].run["weights"] is None


def test_a_signal_ends_it_with_a_checkpoint() -> None:
    built = Built()
    for _ in range(3):
        built.trainer.step()
    built.stop.request(Interrupted(2))
    with pytest.raises(Interrupted, match="SIGINT"):
        built.trainer.train()
    assert built.checkpoints.saved == [3]


def test_env_steps_alone_are_no_budget() -> None:
    with pytest.raises(
        ConfigError, match=r"trainer.max_env_steps .* set trainer.max_opt_steps, got 9"
    ):
        OfflineConfig(max_opt_steps=None, max_env_steps=9)
    assert OfflineConfig(max_opt_steps=None, max_time_s=1.0, max_env_steps=9).max_time_s == 1.0
