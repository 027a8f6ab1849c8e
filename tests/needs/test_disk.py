"""What a run takes of its disk, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import CARTPOLE, datasets_in, write_cartpole

from border_cli.config.compose import compose
from border_cli.core.config import RunConfig
from border_cli.launch.build import env_factory
from border_cli.launch.needs import (
    AgentSizes,
    ReplaySizes,
    checkpoints_made,
    disk_needs,
    evaluations,
    metric_rows,
    most_rows,
    on_disk,
    opt_steps,
    replay_sizes,
    rows_on_disk,
    rows_per_save,
)

MIB = 2**20
AGENT = AgentSizes(parameters=250_000, weights=MIB, state=4 * MIB, units=512, on_host=True)
REPLAY = ReplaySizes(capacity=10_000, row=100, trees=90_000, priorities=80_000)


def config(*overrides: str) -> RunConfig:
    """20,000 updates of 2 samples; 2 actors that send 20 rows at once."""
    return compose("env=cartpole", "trainer.warmup_period=500", *overrides)


def test_rows_are_those_that_updates_pay_for() -> None:
    ahead = 2 * 2 * 20 + 2  # the slack of two actors, and a round of theirs
    assert most_rows(config()) == 500 + 2 * 20_000 + ahead
    assert most_rows(config("trainer.max_env_steps=3000")) == 3_000 + ahead
    assert most_rows(config("trainer.samples_per_opt_step=null")) is None
    assert most_rows(config("trainer.max_opt_steps=null", "trainer.max_time_s=9")) is None


def test_chunks_stay_as_long_as_one_checkpoint_names_them() -> None:
    # each save writes 5,000 x 2 rows, and 3 kept ones with the one under way span 4 of them
    assert rows_on_disk(config("trainer.max_opt_steps=1000000"), 25_000) == 25_000 + 4 * 10_000
    assert rows_on_disk(config("trainer.max_opt_steps=1000000"), 1_000) == 5 * 1_000
    assert rows_on_disk(config(), 100_000) == 40_582  # the run makes no more
    assert rows_on_disk(config("checkpoint.keep=1"), 5_000) == 3 * 5_000


def test_a_save_writes_at_most_the_whole_buffer() -> None:
    assert rows_per_save(config(), 25_000) == 10_000
    assert rows_per_save(config(), 7_000) == 7_000
    assert rows_per_save(config("trainer.samples_per_opt_step=null"), 7_000) == 7_000
    assert rows_per_save(config("trainer.save_interval=0"), 7_000) == 0
    by_time = config("trainer.save_interval=0", "trainer.save_every_s=60")
    assert rows_per_save(by_time, 7_000) == 7_000


def test_every_checkpoint_has_the_agent_and_the_priorities() -> None:
    rows, agent, _ = disk_needs(config("trainer.max_opt_steps=1000000"), agent=AGENT, replay=REPLAY)
    assert rows.nbytes == 50_000 * 100 + 4 * 80_000
    assert agent.nbytes == 7 * (4 * MIB + 128 * 1024)  # 3 kept, one more, 3 best


def test_without_the_replay_buffer_there_are_no_rows_and_milestones_add_up() -> None:
    chosen = config("checkpoint.replay_buffer=false", "checkpoint.milestone_interval=5000")
    agent, _ = disk_needs(chosen, agent=AGENT, replay=REPLAY)
    assert agent.nbytes == (7 + 4) * (4 * MIB + 128 * 1024)


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        ((), 20_000),
        (("trainer.max_env_steps=4500",), 2_000),
        (("trainer.max_opt_steps=null", "trainer.max_env_steps=100"), 0),
        (("trainer.max_opt_steps=null", "trainer.max_time_s=9"), None),
    ],
)
def test_updates_are_those_that_the_budget_allows(
    overrides: tuple[str, ...], steps: int | None
) -> None:
    assert opt_steps(config(*overrides)) == steps


def test_what_an_interval_leaves_over_is_made_up_at_the_end() -> None:
    chosen = config("trainer.max_opt_steps=1001", "trainer.record_interval=0")
    assert evaluations(chosen) == 9  # 8 x 125 and the end
    assert checkpoints_made(chosen) == 1
    assert metric_rows(chosen) == 1
    assert evaluations(config()) == 160


def test_what_an_earlier_attempt_left_is_counted_without_following_links(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "checkpoints/replay").mkdir(parents=True)
    (run_dir / "checkpoints/replay/rows").write_bytes(b"x" * 1000)
    (run_dir / "run.json").write_bytes(b"x" * 20)
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (run_dir / "checkpoints/latest").symlink_to(tmp_path)
    assert 1_020 <= on_disk(run_dir) < 1_220  # a link is as large as its text
    assert on_disk(tmp_path / "missing") == 0


def test_no_row_of_a_data_set_is_written(tmp_path: Path) -> None:
    with datasets_in(tmp_path):
        write_cartpole(CARTPOLE)
        offline = config("trainer=offline", f"replay_buffer.dataset={CARTPOLE}")
        replay = replay_sizes(offline, env_factory(offline).spec)
    assert most_rows(offline) == 0
    whats = [each.what for each in disk_needs(offline, agent=AGENT, replay=replay)]
    assert whats == ["the agent", "metrics and logs"]
