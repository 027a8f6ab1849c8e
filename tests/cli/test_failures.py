"""Runs that fail: the error message, the exit status, and what is saved."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from border_cli.run.finding import steps_saved
from tests.support.case_sampling import sampled
from tests.support.commands import Command, facts_of, full_disk, rows_of, sweep_rows, train_status

Capture = pytest.CaptureFixture[str]

SMALL = (
    "imports=[unruly]",
    "run_dir=run",
    "trainer.max_opt_steps=5000",
    "trainer.warmup_period=50",
    "agent.hidden=[8]",
    "agent.batch_size=8",
    "evaluator.num_episodes=2",
    "actor_manager.max_restarts=0",
    "actor_manager.n_buffer=10",
    "actor_manager.join_timeout_s=0.5",
)
SERIAL = (*SMALL[:-1], "actor_manager=serial")
BAD_RECORDER = """\
from dataclasses import dataclass

from border_cli.settings.run import RecorderConfig
from border_cli.core.output import Recorder
from border_cli.registry import RECORDERS


@dataclass(kw_only=True)
class BadConfig(RecorderConfig):
    pass


class BadRecorder(Recorder):
    def __init__(self, config, *, info, console=None):
        pass

    def write(self, step, metrics, *, final=False):
        raise ValueError("the server said no")

    def close(self):
        pass


RECORDERS.register("bad", BadConfig, "bad_recorder:BadRecorder")
"""


def test_a_quiet_run_that_fails_says_why_on_standard_error(folder: Path, capfd: Capture) -> None:
    argv = (*SERIAL, "env.id=Raises-v0", "env.kwargs.at=300", "actor_manager.num_actors=1")
    assert train_status(*argv, "quiet=true") == 1
    out, err = capfd.readouterr()
    assert re.fullmatch(r"(no score|best score .+ at \d+ updates?): run\n", out)
    assert facts_of(folder / "run")["status"] == "failed"
    assert "error: actor 0 failed, first with RuntimeError: the simulator exploded" in err


@pytest.mark.usefixtures("own_modules")
def test_a_recorder_that_fails_is_switched_off_and_the_run_continues(
    folder: Path, capfd: Capture, write: Callable[[str, str], Path]
) -> None:
    write("bad_recorder.py", BAD_RECORDER)
    package = "# @package recorder.bad\n"
    write("conf/recorder/bad.yaml", f"{package}defaults: [/schema/recorder/bad@_here_, _self_]\n")
    chosen = ("-cd", "conf", "recorder=[jsonl,bad]", "env.id=Calm-v0")
    settings = ("imports=[unruly,bad_recorder]", "trainer.max_opt_steps=300")
    assert train_status(*SMALL[1:], *chosen, *settings) == 0
    out, _ = capfd.readouterr()
    facts = facts_of(folder / "run")
    reason = "ValueError: the server said no"
    assert facts["status"] == "done"
    assert facts["recorders_switched_off"] == {"BadRecorder": reason}
    assert "error: BadRecorder failed and is switched off; training continues without it" in out
    assert rows_of(folder / "run")[-1]["opt_steps"] == 300


def test_an_env_that_raises_ends_the_run_with_its_traceback_and_a_checkpoint(
    folder: Path, capsys: Capture
) -> None:
    argv = (*SERIAL, "env.id=Raises-v0", "env.kwargs.at=300", "actor_manager.num_actors=1")
    assert train_status(*argv) == 1
    said = capsys.readouterr().out
    message = "RuntimeError: the simulator exploded after 300 steps"
    spent = "no restarts are left (actor_manager.max_restarts=0)"
    assert f"error: actor 0 failed, first with {message}; {spent}" in said
    assert said.count("Traceback (most recent call last)") == 1
    facts = facts_of(folder / "run")
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith("actor 0 failed, first with Runtime")
    assert message in facts["traceback"]
    assert steps_saved(folder / "run") == [facts["opt_steps"]]


def test_a_nan_observation_is_named_with_its_actor(folder: Path, capsys: Capture) -> None:
    argv = (*SERIAL, "env.id=Undefined-v0", "env.kwargs.at=100", "actor_manager.num_actors=1",
            "step_processor=n_step")  # fmt: skip
    assert train_status(*argv, "trainer.save_interval=7") == 1
    said = capsys.readouterr().out
    assert "error: next observation of actor 0 (update" in said
    assert "is not finite: [0.5, nan, 0.5]" in said
    assert "Traceback" not in said
    facts = facts_of(folder / "run")
    # messages have 10 samples each; the tenth is rejected. The first update follows sample 50
    assert (facts["samples_total"], facts["opt_steps"]) == (90, 41)
    # a checkpoint that comes due while another is being written is skipped
    assert steps_saved(folder / "run")[-1] in range(7, 36, 7)


BAD_STEPS = {
    "observation: [0.5]": "the observation [0.5] does not fit Box(-1.0, 1.0, (3,), float32): its",
    "observation: [a, b, c]": "the observation ['a', 'b', 'c'] does not fit Box(-1.0, 1.0,",
    "reward: null": "the reward None is not a number",
    "terminated: [false, true]": "terminated [False, True] is not true or false: its shape",
}
ROOMS = "env.kwargs.rooms=true", "env.kwargs.what={observation: 5}"


@pytest.mark.parametrize("what", sampled([*BAD_STEPS], every=4))
@pytest.mark.parametrize("manager", sampled(["serial", "thread", "process"], every=3))
def test_a_step_that_does_not_fit_ends_the_run_in_one_message_and_without_a_restart(
    folder: Path, capsys: Capture, manager: str, what: str
) -> None:
    chosen = ("env.id=Wrong-v0", "env.kwargs.at=100", f"env.kwargs.what={{{what}}}")
    actors = ("actor_manager.max_restarts=3", "actor_manager.num_actors=1")
    assert train_status(*SMALL[:-1], f"actor_manager={manager}", *chosen, *actors) == 1
    said = capsys.readouterr().out
    message = f"error: actor 0, after 99 env steps: env.id=Wrong-v0: {BAD_STEPS[what]}"
    assert said.count(message) == 1, said
    assert "restart" not in said
    assert "Traceback" not in said
    facts = facts_of(folder / "run")
    assert facts["exit_reason"].startswith("actor 0, after 99 env steps: env.id=Wrong-v0: ")
    assert 90 <= facts["samples_total"] <= 99
    assert steps_saved(folder / "run") == [facts["opt_steps"]]


def test_a_run_goes_on_from_before_the_step_that_did_not_fit(folder: Path, capsys: Capture) -> None:
    """The resumed run has a new environment, which does not reach its 100th step."""
    argv = (*SERIAL, "actor_manager.num_actors=1")
    assert train_status(*argv, "env.id=Wrong-v0", "env.kwargs.at=100", *ROOMS) == 1
    said = capsys.readouterr().out
    assert "env.id=Wrong-v0: the observation 5 does not fit Discrete(5): 5 is out of bounds" in said
    assert said.partition("\nnext ")[2].strip().splitlines()[0] == "border-train resume=run"
    before = facts_of(folder / "run")["opt_steps"]
    assert train_status("resume=run", f"trainer.max_opt_steps={before + 20}") == 0
    assert facts_of(folder / "run")["opt_steps"] == before + 20


@pytest.mark.parametrize("background", ["true", "false"])
def test_a_step_that_does_not_fit_in_an_evaluation_is_reported_as_such(
    folder: Path, capsys: Capture, background: str
) -> None:
    evaluator = (
        "+evaluator.env.kwargs={at: 5, rooms: true, what: {observation: 5}}",
        f"evaluator.background={background}", "trainer.eval_interval=10",
    )  # fmt: skip
    assert train_status(*SMALL, "env.id=Wrong-v0", *ROOMS, *evaluator) == 1
    said = capsys.readouterr().out
    message = "error: evaluation: env.id=Wrong-v0, environment 1 of 2: the observation 5 does not"
    assert said.count(message) == 1, said
    assert "Traceback" not in said
    assert facts_of(folder / "run")["exit_reason"].startswith("evaluation: env.id=Wrong-v0")


def test_observations_out_of_bounds_are_reported_once_and_counted_across_a_resume(
    folder: Path, capsys: Capture
) -> None:
    argv = (
        *SERIAL,
        "trainer.max_opt_steps=80",
        "actor_manager.num_actors=1",
        "step_processor=n_step",
    )
    chosen = ("env.id=Wrong-v0", "env.kwargs.at=70", "env.kwargs.what={observation: [0, 0, 1.5]}")
    assert train_status(*argv, *chosen) == 0
    said = capsys.readouterr().out
    warning = "warning: next observation of actor 0 is outside the bounds of its space"
    assert said.count("outside the bounds") == said.count(f"{warning}: 1.5 at [2] (allowed:") == 1
    assert facts_of(folder / "run")["out_of_bounds"] == 2  # once as next_obs and once as obs
    assert train_status("resume=run", "trainer.max_opt_steps=90") == 0
    assert facts_of(folder / "run")["out_of_bounds"] == 2


# With `thread` only the actor hangs; in the other two cases the learner hangs.
BLOCKED = {
    "thread": (*SMALL, "env.kwargs.at=60"),
    "evaluation": (*SMALL, "trainer.eval_interval=10", "+evaluator.env.kwargs.at=5"),
    "sweep": ("-m", *SERIAL, "env.kwargs.at=60,61", "hydra/launcher=basic"),
}


@dataclass
class CommandResult:
    folder: Path
    status: int
    said: str


@pytest.fixture(scope="module")
def blocked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CommandResult]:
    """Results of the commands whose environments block; the commands run in parallel.

    The timeout is 3 s: with three commands on a busy machine a step can take one second.
    """
    with ExitStack() as stack:
        started = {}
        for name, argv in BLOCKED.items():
            folder = tmp_path_factory.mktemp(name)
            more = ("env.id=Blocks-v0", "trainer.stall_timeout_s=3")
            started[name] = folder, stack.enter_context(Command(folder, *argv, *more))
        return {
            name: CommandResult(folder, *run.ended()) for name, (folder, run) in started.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("who", BLOCKED)
def test_an_env_that_blocks_ends_the_run_with_the_line_that_blocks(
    blocked: dict[str, CommandResult], who: str
) -> None:
    ended = blocked[who]
    assert ended.status == 1, ended.said
    assert "error: no step for 3 s (trainer.stall_timeout_s): " in ended.said
    assert "THE LINE THAT BLOCKS" in ended.said
    [record] = (ended.folder / "run").rglob("run.json")
    facts = facts_of(record.parent)
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith("no step for 3 s")
    assert bool(steps_saved(record.parent)) == (who == "thread")
    assert f"run directory  {record.parent.relative_to(ended.folder)}\n" in ended.said


@pytest.mark.slow
def test_a_learner_that_hangs_ends_the_sweep_with_its_table(
    blocked: dict[str, CommandResult],
) -> None:
    ended = blocked["sweep"]
    row, other = sweep_rows(ended.folder / "run")
    assert (row["status"], other["status"]) == ("failed", "not started")
    assert row["reason"].startswith("no step for 3 s")
    assert "0 of 2 jobs done\n" in ended.said
    assert ended.said.endswith("resume=auto\n")  # the command that resumes the sweep


def test_a_full_disk_does_not_end_a_run(folder: Path, capsys: Capture) -> None:
    argv = ("env.id=Calm-v0", *SERIAL, "trainer.max_opt_steps=100", "trainer.record_interval=2")
    with full_disk(8_000):
        assert train_status(*argv, "trainer.save_interval=20", "agent.hidden=[64,64]") == 0
    said = capsys.readouterr().out
    first, last = said.split("run directory  ", 1)[1].split("run directory  ")
    assert "error: could not write a checkpoint ([Errno 27] File too large)" in first
    assert "error: JsonlRecorder could not write ([Errno 27] File too large)" in first
    facts = facts_of(folder / "run")
    assert (facts["status"], facts["opt_steps"]) == ("done", 100)
    assert facts["save_failures"] >= 2  # at least the best model and the last checkpoint
    assert f"warning: save failures: {facts['save_failures']}\n" in first
    assert f"warning: recorder failures: {facts['recorder_failures']}\n" in first
    assert "border-eval" not in last  # no model was saved
    assert not [path for path in (folder / "run" / "checkpoints").rglob("*") if path.is_file()]
