"""`trainer=offline` and `replay_buffer=dataset` on the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from border_cli.core.types import PAST_SCHEDULES
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status, facts_of, train_status
from tests.support.datasets import datasets_in, write_cartpole

Capture = pytest.CaptureFixture[str]

LEARNS = (
    *("env=cartpole", "~tuned", "trainer=offline", "replay_buffer.dataset=my/pole-v0"),
    *("agent.hidden=[4]", "agent.batch_size=4", "evaluator.num_episodes=2"),
    *("trainer.max_opt_steps=20", "trainer.record_interval=10", "run_dir=run"),
)


@pytest.fixture(autouse=True)
def datasets(folder: Path) -> Iterator[Path]:
    with datasets_in(folder / "datasets"):
        write_cartpole("my/pole-v0", episodes=5, ref_min_score=10.0, ref_max_score=110.0)
        yield folder / "datasets"


def steps_of(dataset: str, datasets: Path) -> int:
    text = (datasets / dataset / "data" / "metadata.json").read_text()
    return int(json.loads(text)["total_steps"])


def test_the_output_fits_a_run_without_actors(datasets: Path, capsys: Capture) -> None:
    assert train_status(*LEARNS) == 0
    steps, said = steps_of("my/pole-v0", datasets), capsys.readouterr().out
    for line in (
        "trainer        offline, from the data set only, until 20 updates\n",
        "actors         none; bit-reproducible on a CPU\n",
        f"data set       my/pole-v0, 5 episodes, {steps} steps\n",
        "normalized score: 0 at return 10, 100 at return 110\n",
        "ended          max_opt_steps reached\n",
    ):
        assert line in said
    for word in ("samples", "queue", "lost"):
        assert word not in said
    assert "replay_buffer=dataset" in said
    facts = facts_of(Path("run"))
    assert (facts["opt_steps"], facts["env_steps"], facts["samples_total"]) == (20, 0, 0)
    assert "waiting" not in facts["bottleneck"]


def test_the_normalized_score_stands_beside_the_return(capsys: Capture) -> None:
    assert train_status(*LEARNS, "quiet=true") == 0
    score = json.loads(Path("run/best/score.json").read_text())
    assert score["metrics"]["eval/normalized_score"] == pytest.approx(score["score"] - 10)
    assert eval_status("run", "--json") == 0
    judged = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert judged["normalized_score"] == pytest.approx(judged["mean"] - 10)
    assert eval_status("run") == 0
    assert capsys.readouterr().out.endswith(f"normalized {judged['mean'] - 10:.2f}\n")


def test_a_model_is_judged_without_its_data_set(datasets: Path, capsys: Capture) -> None:
    assert train_status(*LEARNS, "quiet=true", "recorder=none") == 0
    shutil.rmtree(datasets / "my")
    assert eval_status("run", "--json") == 0
    assert "normalized_score" not in json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_a_run_goes_on_with_its_data_set_or_not_at_all(datasets: Path, capsys: Capture) -> None:
    assert train_status(*LEARNS, "recorder=none", "quiet=true") == 0
    assert train_status("resume=run", "trainer.max_opt_steps=30", "quiet=false") == 0
    said = capsys.readouterr().out
    assert "updates; weights, optimiser, random generators; the data set is read again\n" in said
    (datasets / "my").rename(datasets / "other")
    assert train_status("resume=run", "trainer.max_opt_steps=40") == 2
    said = capsys.readouterr().err
    assert "border-train: replay_buffer.dataset: unknown data set 'my/pole-v0'" in said
    assert facts_of(Path("run"))["opt_steps"] == 30


def test_a_run_continues_online_with_transitions_of_both_kinds(
    datasets: Path, capsys: Capture
) -> None:
    assert train_status(*LEARNS, "recorder=none", "quiet=true") == 0
    online = (
        *("env=cartpole", "~tuned", "trainer=async", "init_from=run", "run_dir=online", *QUICK),
        *("replay_buffer=dataset", "replay_buffer.dataset=my/pole-v0", "recorder=none"),
    )
    assert train_status(*online) == 0
    said = capsys.readouterr().out
    steps = steps_of("my/pole-v0", datasets)
    assert f"data set       my/pole-v0, 5 episodes, {steps} steps\n" in said
    assert facts_of(Path("online"))["samples_total"] >= 8
    state = json.loads(Path("online/checkpoints/latest/state.json").read_text())
    published = state["run"]["weights"]
    assert (published["warm_up"], published["env_steps"]) == (False, PAST_SCHEDULES)


def test_a_data_set_has_a_share_of_the_usual_buffers_batches(capsys: Capture) -> None:
    online = (
        *("env=cartpole", "~tuned", "run_dir=run", *QUICK, "recorder=none", "agent.batch_size=9"),
        *("replay_buffer.dataset=my/pole-v0", "replay_buffer.dataset_share=0.4"),
    )
    assert train_status(*online) == 0
    assert " steps, 4 of the 9 transitions of each batch\n" in capsys.readouterr().out
    assert facts_of(Path("run"))["opt_steps"] > 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["replay_buffer.dataset_share=0.5"], "needs replay_buffer.dataset, the id of a data set"),
        (["replay_buffer.dataset_share=0.01"], "at least 1 of agent.batch_size=9 transitions"),
        (["replay_buffer.dataset_share=1"], "at least 1 of agent.batch_size=9 transitions"),
        (["replay_buffer=hindsight"], "unknown setting 'replay_buffer.dataset'"),
    ],
)
def test_a_share_that_leaves_one_part_out_is_refused(
    typed: list[str], said: str, refusal: Callable[..., str]
) -> None:
    base = ["env=cartpole", "~tuned", "agent.batch_size=9"]
    dataset = [] if "needs" in said else ["replay_buffer.dataset=my/pole-v0"]
    assert said in refusal(*base, *dataset, *typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            (["replay_buffer.dataset=null"], "replay_buffer.dataset must be given"),
            (["replay_buffer.dataset=my/pol-v0"], "did you mean my/pole-v0? Data sets in "),
            (["env=acrobot"], "has observations float32 [4], but env.id=Acrobot-v1 has "),
            (["replay_buffer=uniform"], "needs replay_buffer=dataset"),
            (["replay_buffer.dataset_share=0.5"], "must be null with trainer=offline"),
            (
                ["trainer.max_opt_steps=null", "trainer.max_env_steps=9"],
                "set trainer.max_opt_steps, got 9",
            ),
        ],
        every=2,
    ),
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    typed: list[str], said: str, refusal: Callable[..., str]
) -> None:
    base = [
        override for override in LEARNS if not ("uniform" in typed[0] and "dataset=" in override)
    ]
    assert said in refusal(*base, *typed)
