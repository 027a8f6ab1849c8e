"""Classification of a run directory by its files: fresh, started over, resumed or finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.actor_manager.config import SerialConfig
from border_cli.agent.config import DqnConfig
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError
from border_cli.evaluator.config import EpisodesConfig
from border_cli.replay_buffer.config import UniformConfig
from border_cli.run.lock import RunInUse, RunLock
from border_cli.run.run_folder import Differences, EarlierRun, RunFolder, Start
from border_cli.settings.run import AUTO, RunConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer.config import AsyncConfig
from tests.support.written_runs import write_run

CHANGED = ("agent.gamma: 0.9 -> 0.8",)


def settings(resume: str | None, max_opt_steps: int = 400) -> RunConfig:
    trainer = AsyncConfig(max_opt_steps=max_opt_steps)
    return RunConfig(
        agent=DqnConfig(),
        env=GymConfig(id="CartPole-v1"),
        step_processor=NStepConfig(),
        replay_buffer=UniformConfig(),
        actor_manager=SerialConfig(),
        trainer=trainer,
        evaluator=EpisodesConfig(),
        resume=resume,
        run_dir="runs",
    )


def accept_changes(_: Path) -> Differences:
    return Differences(AsyncConfig(max_opt_steps=400), CHANGED)


def refuse_changes(_: Path) -> Differences:
    raise ConfigError("these differ")


def earlier(
    run_dir: Path, config: RunConfig, compare: Callable[[Path], Differences] = accept_changes
) -> EarlierRun:
    return RunFolder(run_dir).check_earlier_run(config, compare)


def with_checkpoint(run_dir: Path) -> Path:
    folder = run_dir / "checkpoints" / "0000000400"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return run_dir


def test_a_new_directory_is_for_a_fresh_run(tmp_path: Path) -> None:
    for resume in (None, AUTO):
        assert earlier(tmp_path / "new", settings(resume)) == EarlierRun(start=Start.FRESH)


def test_an_attempt_without_a_checkpoint_starts_over_whatever_its_settings(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "a", status="failed")
    assert earlier(run_dir, settings(AUTO), refuse_changes) == EarlierRun(start=Start.OVER)


def test_a_run_with_a_checkpoint_is_continued_with_what_changed(tmp_path: Path) -> None:
    run_dir = with_checkpoint(write_run(tmp_path / "a", status="failed"))
    for resume in (AUTO, str(run_dir)):
        run = earlier(run_dir, settings(resume))
        assert run == EarlierRun(start=Start.CONTINUED, changed=CHANGED)
    with pytest.raises(ConfigError, match="these differ"):
        earlier(run_dir, settings(AUTO), refuse_changes)


def test_a_finished_run_stays_so_until_its_limit_grows(tmp_path: Path) -> None:
    run_dir = with_checkpoint(write_run(tmp_path / "a"))
    run = earlier(run_dir, settings(AUTO))
    assert (run.start, run.score, run.resumes) == (Start.FINISHED, 200.0, True)
    assert "is finished with score 200: max_opt_steps reached" in run.message
    assert earlier(run_dir, settings(AUTO, 401)).start is Start.CONTINUED


def test_a_directory_in_use_or_with_a_foreign_file_is_refused(tmp_path: Path) -> None:
    with RunLock(tmp_path / "used"), pytest.raises(RunInUse, match="is in use by process"):
        RunFolder(tmp_path / "used").refuse_in_use()
    (tmp_path / "run.json").symlink_to("elsewhere")
    with pytest.raises(ConfigError, match="is a link to"):
        RunFolder(tmp_path).refuse_in_use()


def test_a_directory_with_a_run_is_refused_without_resume(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "a")
    with pytest.raises(ConfigError, match="already contains a run"):
        earlier(run_dir, settings(None))
    with pytest.raises(ConfigError, match="is not a run directory"):
        earlier(tmp_path / "b", settings(str(tmp_path / "b")))


@pytest.mark.parametrize("limit", ["max_env_steps", "patience"])
def test_a_finished_run_names_the_limit_that_ended_it(tmp_path: Path, limit: str) -> None:
    run_dir = write_run(tmp_path / "a", exit_reason=f"{limit} reached")
    assert f"such as trainer.{limit}, to continue" in earlier(run_dir, settings(AUTO)).message
