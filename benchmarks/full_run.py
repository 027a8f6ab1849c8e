"""A full `async` run on CartPole, from launch to end, and how fast its learner was."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bare import LEARNING_RATE, TARGET_INTERVAL, Speed, now, speed_between
from border_cli.actor_manager.config import ThreadConfig
from border_cli.agent.config import DqnConfig
from border_cli.assemble import build_recorders
from border_cli.core.config import RunConfig
from border_cli.core.output import Recorder, RecordStep
from border_cli.core.types import Metrics
from border_cli.env.config import GymConfig
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch import Launch, launch
from border_cli.recorder.config import JsonlConfig
from border_cli.replay_buffer.config import UniformConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig

BATCH_SIZE = 64
OFF: dict[str, Any] = {"eval_interval": 0, "save_interval": 0}
# The actor fills the buffer, then sleeps at its gate: no update ever pays for another sample.
ASLEEP = {"samples_per_opt_step": 1e-6, **OFF}
# An update may take 30 ms here, so the run ends by the clock.
FREE = {"samples_per_opt_step": None, "record_interval": 10, "max_time_s": 6.0, **OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to run."""

    meaning: str
    actors: int
    settings: dict[str, Any]  # of the trainer
    settled: int = 1_000  # updates before the clock starts: threads, caches, allocators


RUNS = {
    "actors_0": Row(meaning="its one actor sleeps", actors=1, settings=ASLEEP),
    "paced_1": Row(meaning="1 sample per update", actors=1, settings=OFF),
    "paced_2": Row(meaning="1 sample per update", actors=2, settings=OFF),
    "defaults_2": Row(
        meaning="1 sample per update, evaluates and saves at the default intervals",
        actors=2,
        settings={},
    ),
    "free_1": Row(meaning="each as fast as it can", actors=1, settings=FREE, settled=20),
    "free_2": Row(meaning="each as fast as it can", actors=2, settings=FREE, settled=20),
}


class Marks(Recorder):
    """Notes the time of every row of metrics; the learner's thread calls it."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[tuple[float, float, float], float]] = {}  # by opt steps

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del final  # the first row of a step is the one that its update ended with
        self._marks.setdefault(step.opt_steps, (now(), metrics["async/samples_total"]))

    def close(self) -> None:
        """Nothing is held."""

    def speed(self, since: int) -> Speed:
        """Of all updates after number `since`."""
        last = max(self._marks)
        (began, samples), (ended, samples_after) = self._marks[since], self._marks[last]
        return speed_between(began, ended, last - since, samples_after - samples)


def run_config(row: Row, updates: int, seed: int) -> RunConfig:
    return RunConfig(
        seed=seed,
        agent=DqnConfig(
            hidden=[256, 256],
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            target_interval=TARGET_INTERVAL,
            max_grad_norm=None,
        ),
        env=GymConfig(id="CartPole-v1"),
        step_processor=NStepConfig(),
        replay_buffer=UniformConfig(),
        actor_manager=ThreadConfig(num_actors=row.actors),
        trainer=AsyncConfig(max_opt_steps=row.settled + updates, **row.settings),
        evaluator=EpisodesConfig(),
        recorder={"jsonl": JsonlConfig()},
    )


def full_run(row: Row, updates: int, seed: int) -> Speed:
    """A run from launch to end; its last evaluation and save are made, but not timed."""
    config = run_config(row, updates, seed)
    marks = Marks()
    with tempfile.TemporaryDirectory() as folder:
        recorders = [*build_recorders(config, Path(folder), None), marks]
        launch(config, Path(folder), Launch(recorders=recorders))
    return marks.speed(row.settled)
