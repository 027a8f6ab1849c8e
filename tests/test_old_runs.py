"""A run that was saved before the files of a checkpoint were written and read by other modules.

`run_before_redesign.tar.xz` was made by the code of then: dqn on CartPole with two thread actors, a
prioritized replay buffer and 3-step transitions, evaluated in the background, and interrupted while
an evaluation was pending. So it has what is no longer written: `candidate.pt`, states of actors in
the middle of their episodes, and `.npy` files of version 3.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import commands
import pytest
from commands import eval_status
from sampling import sampled

from border_cli.api import resume, train
from border_cli.config.compose import compose
from border_cli.recorder.read import read_metrics
from border_cli.run.finding import best_score, steps_saved
from border_cli.run.removal import remove_run

SAVED = Path(__file__).parent / "support" / "run_before_redesign.tar.xz"


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    with commands.isolated(tmp_path), tarfile.open(SAVED) as archive:
        archive.extractall(tmp_path, filter="data")
        yield tmp_path / "run"


def test_its_best_model_gets_the_score_that_it_had(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = best_score(run_dir)
    assert best is not None
    assert eval_status(str(run_dir), "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean"] == best[0]


def test_a_new_run_begins_with_its_weights(run_dir: Path) -> None:
    config = compose(
        *("agent=dqn", "env=cartpole", "~tuned", "agent.hidden=[16,16]", f"init_from={run_dir}"),
        *("trainer=sync", "trainer.max_opt_steps=2", "trainer.warmup_period=20", "recorder=none"),
        *("evaluator.num_episodes=1", "quiet=true", f"run_dir={run_dir.parent / 'new'}"),
    )
    assert train(config).trainer_stats.opt_steps == 2


def test_it_is_removed_whole(run_dir: Path) -> None:
    assert remove_run(run_dir)


@pytest.mark.parametrize("actors", sampled(["thread", "serial"], every=2))
def test_it_resumes_without_a_gap_and_evaluates_what_was_pending(
    run_dir: Path, actors: str
) -> None:
    (*_, newest), best = steps_saved(run_dir), best_score(run_dir)
    metrics = read_metrics(run_dir / "metrics.jsonl")
    before = [row for row in metrics if row["opt_steps"] < newest]
    result = resume(
        run_dir,
        f"trainer.max_opt_steps={newest + 60}",
        *(f"actor_manager={actors}", "trainer.eval_interval=0", "trainer.record_interval=20"),
    )
    assert result.trainer_stats.opt_steps == newest + 60
    rows = read_metrics(run_dir / "metrics.jsonl")
    assert rows[: len(before)] == before
    after = rows[len(before) :]
    steps = [row["opt_steps"] for row in after if "eval/return" not in row]
    assert steps == sorted(steps)
    assert {newest + 20, newest + 40, newest + 60} <= set(steps)
    # The evaluation that was pending is made with the weights of the checkpoint.
    assert newest in [row["opt_steps"] for row in after if "eval/return" in row]
    assert best_score(run_dir)[0] == result.best_score >= best[0]  # type: ignore[index]
    assert steps_saved(run_dir)[-1] == newest + 60
