"""Trainers built from fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from border_cli.actor_manager.weights import forms_of
from border_cli.core.callback import Callback
from border_cli.core.interfaces import ActorStats, Env, EvaluationRunner
from border_cli.core.stop import Heartbeat, SaveFlag, StopFlag
from border_cli.core.timing import Clock
from border_cli.core.types import Snapshot
from border_cli.evaluator.runner import InlineEvaluationRunner
from border_cli.trainer.callbacks import Callbacks, name_callbacks
from border_cli.trainer.config import AsyncConfig, SyncConfig
from border_cli.trainer.evaluating import EpisodeLimit
from border_cli.trainer.online import AsyncTrainer, OnlineTrainer, SyncTrainer
from border_cli.trainer.recorder_set import RecorderSet
from border_cli.trainer.trainer import LearnerParts
from tests.support.actor_managers import Built
from tests.support.fakes import (
    SPEC,
    FakeAgent,
    FakeClock,
    ListBuffer,
    ListRecorder,
    MemoryCheckpoints,
    ScriptedEvaluator,
)
from tests.support.scripted_envs import Life


class BuiltTrainer:
    """A trainer and all its parts; `settings` are fields of the trainer's config."""

    def __init__(
        self,
        kind: str = "async",
        backend: str = "serial",
        *,
        agent: FakeAgent | None = None,
        evaluator: ScriptedEvaluator | None = None,
        runner: EvaluationRunner | None = None,
        checkpoints: MemoryCheckpoints | None = None,
        recorder: ListRecorder | None = None,
        callbacks: Sequence[Callback] = (),
        clock: Clock | None = None,
        buffer: ListBuffer | None = None,
        make_env: Callable[[int], Env] | None = None,
        lives: Sequence[Life] = (),
        folder: Path | None = None,
        episode_limit: EpisodeLimit | None = None,
        num_actors: int = 2,
        n_buffer: int = 10,
        max_restarts: int = 0,
        **settings: Any,
    ) -> None:
        if kind == "sync":
            backend, n_buffer = "serial", 1
        self.clock = clock or FakeClock()
        self.agent = agent or FakeAgent()
        self.buffer = ListBuffer() if buffer is None else buffer
        self.evaluator = evaluator or ScriptedEvaluator()
        self.checkpoints = checkpoints or MemoryCheckpoints()
        self.recorder = recorder or ListRecorder()
        self.stop = StopFlag()
        self.save = SaveFlag()
        self.published: list[Snapshot] = []
        self.built = Built(
            backend, make_env, lives=lives, folder=folder, forms=forms_of(self.agent.snapshot()),
            num_actors=num_actors, n_buffer=n_buffer, max_restarts=max_restarts,
        )  # fmt: skip
        self.manager = self.built.manager
        settings = {"warmup_period": 20, "max_opt_steps": 50} | settings
        config = SyncConfig(**settings) if kind == "sync" else AsyncConfig(**settings)
        self.recording = RecorderSet([self.recorder])
        runner = runner or InlineEvaluationRunner(
            self.evaluator,
            lambda: self.agent.factory(None),  # type: ignore[arg-type]
            Heartbeat("evaluation"),
        )
        make = SyncTrainer if kind == "sync" else AsyncTrainer
        self.trainer: OnlineTrainer = make(
            config,
            parts=LearnerParts(
                agent=self.agent,
                replay_buffer=self.buffer,
                actors=self.manager,
                evaluation_runner=runner,
                checkpoints=self.checkpoints,
                recording=self.recording,
                clock=self.clock,
                stop=self.stop,
                save=self.save,
                callbacks=Callbacks(name_callbacks(callbacks)),
                episode_limit=episode_limit or EpisodeLimit(),
            ),
            batch_size=4,
            slack=2 * num_actors * n_buffer,
            spec=SPEC,
        )

    def train(self) -> list[ActorStats]:
        with self.manager:
            return self.trainer.train()
