"""`dry_run=true`, and runs that are refused because they need too much memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.config.compose import Composer
from border_cli.errors import ConfigError
from border_cli.sweep.plan import plan_sweep
from tests.support.commands import train_status

Capture = pytest.CaptureFixture[str]

HUGE = "replay_buffer.capacity=1000000000000"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def shown(capsys: Capture, *argv: str, status: int = 0) -> tuple[str, str]:
    """Returns the output of a dry run, with runs of spaces collapsed, and its error message."""
    assert train_status(*argv, "dry_run=true") == status
    said = capsys.readouterr()
    return re.sub(" +", " ", said.out), said.err


def test_a_dry_run_tells_what_would_be_done_and_makes_no_folder(
    folder: Path, capsys: Capture
) -> None:
    said, _ = shown(
        capsys, "env=cartpole", "agent.hidden=[4]", "run_dir=mine", "trainer.max_opt_steps=1000",
        "recorder=[jsonl]", "trainer.warmup_period=500",
    )  # fmt: skip
    assert list(folder.iterdir()) == []
    for line in (
        "tuned values",
        "env CartPole-v1, observes Box(",
        "acts Discrete(2)",
        "trainer async, 2 samples per update, until 1,000 updates",
        "evaluation 20 episodes, episode limit 500 steps (from the env)",
        "parameters=30, agent.batch_size=256",
        f"run directory {folder}/mine",
        "replay buffer 5 MiB replay_buffer.capacity=100000 transitions of 48 B",
        "dry run: no job was started and no file was written",
    ):
        assert line in said


def test_missing_memory_is_shown_and_then_refused(folder: Path, capsys: Capture) -> None:
    said, refused = shown(capsys, "env=cartpole", HUGE, status=2)
    assert list(folder.iterdir()) == []
    assert "needed 44,703" in said
    assert refused.startswith("border-train: the run needs 44,703.")
    assert "replay_buffer.capacity=1000000000000 transitions of 48 B" in refused


@pytest.mark.slow
def test_a_sweep_shows_a_line_per_job_and_the_largest(folder: Path, capsys: Capture) -> None:
    said, _ = shown(
        capsys, "env=cartpole", "-m", "seed=0,1", "replay_buffer.capacity=1000,200000",
        "trainer.warmup_period=500",
    )  # fmt: skip
    assert list(folder.iterdir()) == []
    for number, swept in enumerate(("0 {}=1000", "0 {}=200000", "1 {}=1000", "1 {}=200000")):
        assert re.search(rf"job {number} \(.*{swept.format('replay_buffer.capacity')}.*: ", said)
    assert "memory of job 1 (" in said


def test_a_job_that_is_too_large_is_named_before_any_folder_is_made(
    refusal: Callable[..., str],
) -> None:
    said = refusal("env=cartpole", "-m", f"{HUGE},1000", "trainer.warmup_period=9")
    assert re.match(rf"border-train: job 0 \(.*{HUGE}.*\) needs 44,703\.", said)


def test_the_jobs_of_another_sweeper_cannot_be_shown(folder: Path) -> None:
    assert folder
    sweeper = "hydra.sweeper._target_=another.Sweeper"
    overrides = ["env=cartpole", "seed=1,2", sweeper]
    assert plan_sweep(Composer(), overrides, []).jobs == []
    with pytest.raises(ConfigError, match="dry_run=true cannot show the jobs of this sweeper"):
        plan_sweep(Composer(), [*overrides, "dry_run=true"], [])
