"""Complete runs: what they leave on the disk, interruptions, limits and hangs."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.actor_manager.config import SerialConfig, ThreadConfig
from border_cli.agent.config import DqnConfig
from border_cli.config.job import Job
from border_cli.core.callback import Callback
from border_cli.core.output import Progress, Recorder, RecordStep, RunEnd
from border_cli.core.stop import StopFlag
from border_cli.core.types import Metrics
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError, Interrupted, Stalled
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch.run import Run, RunOptions, run_job
from border_cli.recorder.config import JsonlConfig, TensorboardConfig
from border_cli.recorder.read import read_metrics
from border_cli.replay_buffer.config import UniformConfig
from border_cli.run.finding import find_checkpoint, steps_saved
from border_cli.run.manifest import verify
from border_cli.run.sweep_folder import write_stop
from border_cli.settings.run import CheckpointConfig, RunConfig, TrainerConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig, SyncConfig
from tests.support.fakes import ListRecorder
from tests.support.whole_runs import trained

TRAINERS: dict[str, tuple[type[TrainerConfig], Any]] = {
    "sync": (SyncConfig, SerialConfig),
    "async-serial": (AsyncConfig, SerialConfig),
    "async-thread": (AsyncConfig, ThreadConfig),
}
BUDGET = {
    "max_opt_steps": 300,
    "warmup_period": 100,
    "eval_interval": 100,
    "record_interval": 50,
    "save_interval": 150,
    "sync_interval": 20,
}


def make_config(kind: str, **changes: Any) -> RunConfig:
    trainer, actor_manager = TRAINERS[kind]
    settings: dict[str, Any] = {
        "seed": 3,
        "name": "test",
        "agent": DqnConfig(hidden=[16], batch_size=16, double=True, target_interval=50),
        "env": GymConfig(id="CartPole-v1"),
        "step_processor": NStepConfig(n_steps=3),
        "replay_buffer": UniformConfig(capacity=1_000),
        "actor_manager": actor_manager(num_actors=2, n_buffer=10),
        "trainer": trainer(**BUDGET),
        "evaluator": EpisodesConfig(num_episodes=3),
        "recorder": {"jsonl": JsonlConfig(), "tensorboard": TensorboardConfig()},
        "checkpoint": CheckpointConfig(keep=2),
    }
    return RunConfig(**settings | changes)


def facts(run_dir: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run_dir / "run.json").read_text())
    return content


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_training_leaves_everything_that_a_run_directory_has(kind: str, tmp_path: Path) -> None:
    result = trained(make_config(kind), tmp_path)

    record = facts(tmp_path)
    assert record["status"] == "done"
    assert record["opt_steps"] == result.trainer_stats.opt_steps == result.agent.opt_steps == 300
    assert record["samples_total"] == sum(stats.samples for stats in result.actor_stats)
    assert record["env_steps"] == sum(stats.env_steps for stats in result.actor_stats)
    assert record["samples_total"] >= 100 + 299  # the warm-up, plus one sample per later update
    rows = read_metrics(tmp_path / "metrics.jsonl")
    scores = {row["opt_steps"]: row["eval/return"] for row in rows if "eval/return" in row}
    assert sorted(scores) == [100, 200, 300]
    assert record["best_score"] == result.best_score == max(scores.values())
    assert scores[record["best_opt_steps"]] == record["best_score"]
    assert steps_saved(tmp_path) == [150, 300]
    for which in ("best", "latest", "150"):
        verify(find_checkpoint(tmp_path, which))
    assert list(tmp_path.glob("events.out.tfevents.*"))


# Runs that end early ----------------------------------------------------------------------------


class Recording(ListRecorder):
    """A recorder that calls `act` at its second row and stores how the run ended."""

    ended: RunEnd | None = None

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.closings, self._act = 0, act

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        super().write(step, metrics, final=final)
        if len(self.rows) == 2:
            self._act()

    def end(self, ended: RunEnd) -> None:
        assert self.closings == 0
        self.ended = ended

    def close(self) -> None:
        self.closings += 1


class Delivering(Recording):
    """A recorder that stores the status in `run.json` and the thread names during `wait`."""

    status, threads = "", ()

    def __init__(self, run_dir: Path, act: Callable[[], None] = lambda: None) -> None:
        super().__init__(act)
        self._run_dir = run_dir

    def wait(self) -> None:
        assert self.closings == 1
        self.status = facts(self._run_dir)["status"]
        self.threads = tuple(thread.name for thread in threading.enumerate())


def test_a_delivery_that_takes_long_changes_nothing_in_how_a_run_ended(tmp_path: Path) -> None:
    stop = StopFlag()
    done = Delivering(tmp_path / "done")
    stopped = Delivering(tmp_path / "stopped", lambda: stop.request(Interrupted(signal.SIGINT)))
    trained(make_config("sync"), tmp_path / "done", recorders=[done])
    with pytest.raises(Interrupted, match="stopped by SIGINT"):
        trained(make_config("sync"), tmp_path / "stopped", recorders=[stopped], stop=stop)
    assert (done.status, stopped.status) == ("done", "interrupted")
    assert "watchdog" not in {*done.threads, *stopped.threads}


@pytest.mark.parametrize("kind", TRAINERS)
def test_an_interrupted_run_saves_and_says_so(kind: str, tmp_path: Path) -> None:
    stop = StopFlag()
    recorder = Recording(lambda: stop.request(Interrupted(signal.SIGINT)))
    with pytest.raises(Interrupted, match="stopped by SIGINT"):
        trained(make_config(kind), tmp_path, recorders=[recorder], stop=stop)
    record = facts(tmp_path)
    assert (record["status"], record["exit_reason"]) == ("interrupted", "stopped by SIGINT")
    assert record["opt_steps"] == 100
    assert steps_saved(tmp_path) == [100]
    assert recorder.ended is not None
    assert (recorder.ended.status, recorder.ended.exit_reason) == (
        record["status"],
        record["exit_reason"],
    )
    assert recorder.ended.best_score == record["best_score"]
    assert recorder.ended.summary["opt_steps"] == record["opt_steps"]
    assert recorder.closings == 1


def test_a_job_of_a_sweep_that_was_stopped_before_it_ran_is_interrupted(tmp_path: Path) -> None:
    """The job received no signal, because it was not yet marked as running."""
    write_stop(tmp_path, "stopped by SIGINT")
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        trained(make_config("sync"), tmp_path / "job", sweep=tmp_path)


def test_settings_that_only_a_component_can_refuse_close_what_was_open(tmp_path: Path) -> None:
    recorder = Recording()
    env = GymConfig(id="Pendulum-v1")  # its actions are not discrete
    with pytest.raises(ConfigError, match="dqn"):
        trained(make_config("sync", env=env), tmp_path, recorders=[recorder])
    assert facts(tmp_path)["status"] == "failed"
    assert recorder.closings == 1


def test_the_limit_that_ended_the_run_is_the_one_that_is_told(tmp_path: Path) -> None:
    limits: list[tuple[str, dict[str, Any]]] = [
        ("max_env_steps", {"max_opt_steps": None, "max_env_steps": 150}),
        ("max_time_s", {"max_opt_steps": None, "max_time_s": 1e-3}),
        ("stop_at_score", {"stop_at_score": 1.0, "stop_evals": 2, "max_env_steps": 10_000}),
    ]
    for name, limit in limits:
        trained(make_config("sync", trainer=SyncConfig(**BUDGET | limit)), tmp_path / name)
        assert facts(tmp_path / name)["exit_reason"] == f"{name} reached"


# Options of the caller --------------------------------------------------------------------------


def test_on_prepared_is_called_while_the_run_is_marked_as_running(tmp_path: Path) -> None:
    trainer = SyncConfig(**BUDGET | {"max_opt_steps": 1})
    job = Job(folder=tmp_path, config=make_config("sync", trainer=trainer), command=("mine",))

    def check_prepared(run: Run) -> None:
        assert run.spec.id == "CartPole-v1"
        assert facts(tmp_path)["status"] == "running"

    run_job(job, RunOptions(on_prepared=check_prepared))
    assert facts(tmp_path)["command"] == ["mine"]
    assert facts(tmp_path)["status"] == "done"


# Hanging ----------------------------------------------------------------------------------------


# A stray KeyboardInterrupt would end the whole test run. If it is expected here, only this test
# fails, because its empty message does not match.
EXPECTED = (Stalled, KeyboardInterrupt)


class HangingRecorder(Recorder):
    """A recorder whose `close` hangs."""

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        pass

    def show(self, progress: Progress) -> None:
        pass

    def close(self) -> None:
        threading.Event().wait(20)


@pytest.mark.slow
def test_a_component_that_hangs_in_close_is_detected(tmp_path: Path) -> None:
    trainer = SyncConfig(**BUDGET | {"stall_timeout_s": 0.2})
    with pytest.raises(EXPECTED, match=r"threading\.Event\(\)\.wait\(20\)"):
        trained(make_config("sync", trainer=trainer), tmp_path, recorders=[HangingRecorder()])
    assert facts(tmp_path)["status"] == "failed"


class DeletingRecorder(HangingRecorder):
    """A recorder whose `close` deletes the run directory, and then hangs."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def close(self) -> None:
        shutil.rmtree(self._run_dir, ignore_errors=True)
        super().close()


@pytest.mark.slow
def test_a_hang_in_a_deleted_run_directory_ends_the_run(tmp_path: Path) -> None:
    trainer = SyncConfig(**BUDGET | {"stall_timeout_s": 0.2})
    folder = tmp_path / "run"
    with pytest.raises(EXPECTED, match=r"threading\.Event\(\)\.wait\(20\)"):
        trained(make_config("sync", trainer=trainer), folder, recorders=[DeletingRecorder(folder)])


class ProgressReader(Callback):
    """A callback that reads the best score in the progress of the run before its second update."""

    best: float | None = None

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._updates = run_dir, 0

    def on_update(self, moment: RecordStep, metrics: Metrics) -> None:
        del moment, metrics
        self._updates += 1
        if self._updates == 2:
            self.best = facts(self._run_dir)["progress"]["best"]


def test_the_progress_of_a_resumed_job_has_the_best_score_of_earlier_attempts(
    tmp_path: Path,
) -> None:
    best_score = trained(make_config("sync"), tmp_path).best_score
    reader = ProgressReader(tmp_path)
    config = make_config(
        "sync",
        trainer=SyncConfig(**BUDGET | {"max_opt_steps": 310}),
        resume="auto",
        run_dir=str(tmp_path),
    )
    run_job(Job(folder=tmp_path, config=config, number=0), RunOptions(callbacks={"it": reader}))
    assert reader.best == best_score
