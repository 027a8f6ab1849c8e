"""A full run (`border_cli.launch.run.run_job`), measured over a window."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import as_border  # noqa: F401 - imported for its effect
from benchmarks.bare import BATCH_SIZE, LEARNING_RATE, TARGET_INTERVAL
from benchmarks.window import Over, Span, Window
from border_cli.agent.config import DqnConfig
from border_cli.config.job import Job
from border_cli.core.output import Recorder
from border_cli.core.stop import StopFlag
from border_cli.env.config import GymConfig
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch.build import build_recorders
from border_cli.launch.effective import effective_settings
from border_cli.launch.run import RunOptions, run_job
from border_cli.recorder.config import JsonlConfig
from border_cli.registry import ACTOR_MANAGERS, register_builtin
from border_cli.replay_buffer.config import UniformConfig
from border_cli.settings.run import AgentConfig, RunConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig, SyncConfig

OFF: Mapping[str, Any] = {"eval_interval": 0, "save_interval": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings in which runs of the benchmarks differ; all others have their defaults."""

    meaning: str = ""
    manager: str = "thread"  # or "serial" or "process"; "sync" means trainer=sync
    actors: int = 1
    num_envs: int = 1
    n_buffer: int = 100
    env_id: str = "CartPole-v1"
    capacity: int = 100_000
    max_grad_norm: float | None = None
    agent: AgentConfig | None = None  # replaces matched DQN
    trainer: Mapping[str, Any] = field(default_factory=dict)

    def run_config(self, seed: int) -> RunConfig:
        """Returns the settings of a run without a limit on updates: its window ends it."""
        sync = self.manager == "sync"
        manager = ACTOR_MANAGERS.entry("serial" if sync else self.manager)
        settings = {**OFF, "max_opt_steps": None, "max_time_s": 600.0, "sync_interval": 100}
        settings |= self.trainer
        return RunConfig(
            seed=seed,
            agent=self.agent or self._matched_dqn(),
            env=GymConfig(id=self.env_id, num_envs=self.num_envs),
            step_processor=NStepConfig(),
            replay_buffer=UniformConfig(capacity=self.capacity),
            actor_manager=manager.config_type(num_actors=self.actors, n_buffer=self.n_buffer),
            trainer=(SyncConfig if sync else AsyncConfig)(**settings),
            evaluator=EpisodesConfig(),
            recorder={"jsonl": JsonlConfig()},
        )

    def _matched_dqn(self) -> DqnConfig:
        return DqnConfig(
            hidden=[256, 256],
            batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            double=False,
            tau=1.0,
            target_interval=TARGET_INTERVAL,
            max_grad_norm=self.max_grad_norm,
        )


def full_run(setup: Setup, span: Span, seed: int) -> Window:
    """Runs until the window is over; the time to close is not measured."""
    stop = StopFlag()
    window = Window(span, actors=setup.actors, stop=stop)
    with suppress(Over):
        recorded_run(setup, window, stop, seed)
    return window


def recorded_run(setup: Setup, recorder: Recorder, stop: StopFlag, seed: int) -> None:
    """Runs until the additional `recorder` stops the run; raises the recorder's stop reason."""
    register_builtin()
    effective = effective_settings(setup.run_config(seed))
    with tempfile.TemporaryDirectory() as folder:
        recorders = [*build_recorders(effective, Path(folder), None), recorder]
        job = Job(folder=Path(folder), config=effective.config)
        run_job(job, RunOptions(recorders=recorders, stop=stop))


def missing(setup: Setup) -> bool:
    """Returns whether this version lacks the actor manager."""
    register_builtin()
    return setup.manager not in ("sync", *ACTOR_MANAGERS.names())
