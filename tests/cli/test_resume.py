"""Resumed runs: the checks before training, what the job does, and its output."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.cli import train
from border_cli.config.compose import compose
from border_cli.config.job import Job, resolved_yaml, write_resolved
from border_cli.config.saved import load_resolved
from border_cli.launch import closing
from border_cli.launch.job import Outcome, train_job
from border_cli.run.lock import RunLock
from border_cli.run.run_folder import Differences, EarlierRun, RunFolder, Start
from border_cli.system.files import write_json
from tests.support import commands
from tests.support.case_sampling import sampled
from tests.support.commands import facts_of, repeatable_rows, train_status

Capture = pytest.CaptureFixture[str]
Ran = Callable[..., Any]
Refusal = Callable[..., str]

TYPED = (
    *("env=cartpole", "actor_manager=serial", "actor_manager.n_buffer=20"),
    *("trainer.samples_per_opt_step=1", "trainer.stop_at_score=null", "trainer.warmup_period=50"),
    *("trainer.max_opt_steps=100", "trainer.eval_interval=50", "trainer.save_interval=50"),
    *("trainer.record_interval=50", "evaluator.num_episodes=2", "agent.hidden=[8]"),
)
JOB_1 = "seed-1"
ENDLESS = (  # runs until its environment sends a signal
    *("imports=[unruly]", "trainer.max_opt_steps=1000000", "trainer.warmup_period=20"),
    *("agent.hidden=[4]", "agent.batch_size=4", "evaluator.num_episodes=1"),
    *("actor_manager=serial", "actor_manager.n_buffer=10", "actor_manager.num_actors=1"),
    "env.id=Signals-v0",
)


def stopped(run_dir: Path, status: str = "interrupted", **facts: Any) -> None:
    """Writes the files of a stopped attempt; the checkpoint only looks complete."""
    (run_dir / "checkpoints" / "0000000010").mkdir(parents=True)
    (run_dir / "checkpoints" / "0000000010" / "manifest.json").write_text("{}")
    reason = "max_opt_steps reached" if status == "done" else "stopped by SIGTERM"
    record = {"status": status, "exit_reason": reason, "best_score": 7.5, "final_score": 2.0}
    write_json(run_dir / "run.json", record | facts)


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_resumed_by_its_folder_alone_from_anywhere(
    folder: Path, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ran("run_dir=a", "env=cartpole", "seed=3")
    stopped(folder / "a")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    again = ran("resume=../a")
    (job,) = again.jobs
    assert job.folder == folder / "a"
    assert resolved_yaml(again.configs[0]) == resolved_yaml(first.configs[0])
    assert again.earlier == [EarlierRun(start=Start.CONTINUED)]
    assert list((folder / "elsewhere").iterdir()) == []


def test_what_may_not_change_is_refused_with_the_way_out(
    folder: Path, ran: Ran, refusal: Refusal
) -> None:
    ran("run_dir=a", "env=cartpole")
    stopped(folder / "a")
    for typed in (["resume=a"], ["resume=auto", "run_dir=a", "env=cartpole"]):
        said = refusal(*typed, "agent.gamma=0.5", "trainer.max_opt_steps=7")
        assert (
            "but these differ from a/.hydra/resolved.yaml:\n  agent.gamma: 0.995 -> 0.5\n" in said
        )
        assert "trainer.max_opt_steps: " not in said
        assert "set init_from=a" in said
    assert "  agent: dqn -> random\n" in refusal("resume=a", "agent=random")


def test_a_learning_rate_may_change_as_a_number_or_a_schedule(folder: Path, ran: Ran) -> None:
    ran("run_dir=a", "agent=sac", "env=pendulum")
    stopped(folder / "a")
    (changed,) = (run.changed for run in ran("resume=a", "agent.learning_rate=0.5").earlier)
    assert changed == ("agent.learning_rate: 0.001 -> 0.5",)
    scheduled = ("agent.critic_learning_rate.initial=0.1", "agent.critic_learning_rate.final=0")
    (earlier,) = ran("resume=a", *scheduled).earlier
    assert earlier.resumes
    assert any("critic_learning_rate.final: absent -> 0" in change for change in earlier.changed)


def test_settings_may_change_where_nothing_was_saved(folder: Path, ran: Ran) -> None:
    first = ran("run_dir=a", "env=cartpole", "resume=auto")
    assert first.earlier == [EarlierRun(start=Start.FRESH)]
    write_json(folder / "a" / "run.json", {"status": "failed"})
    again = ran("run_dir=a", "env=cartpole", "resume=auto", "agent.gamma=0.5")
    assert again.earlier == [EarlierRun(start=Start.OVER)]
    assert load_resolved(folder / "a").agent.gamma == 0.5


def test_a_run_that_is_running_is_refused(folder: Path, ran: Ran, refusal: Refusal) -> None:
    new = ["run_dir=a", "env=cartpole"]
    ran(*new)
    stopped(folder / "a", "running", pid=77, host="far")
    with RunLock(folder / "a"):
        for typed in (["resume=a"], ["resume=auto", *new], new):
            assert f"a is in use by process {os.getpid()} on " in refusal(*typed)
    assert ran("resume=a").earlier == [EarlierRun(start=Start.CONTINUED)]  # without a lock: killed


def train_or_refuse(job: Job) -> Outcome:
    return train_job(job)


def test_a_folder_that_another_process_has_taken_since_the_checks_is_left_alone(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []

    def begin(job: Job) -> Outcome:
        write_resolved(job.folder, "seed: 1")
        with commands.other_process(job.folder):
            before = commands.stamps(job.folder)
            outcomes.append(train_or_refuse(job))
            assert commands.stamps(job.folder) == before
        return outcomes[0]

    monkeypatch.setattr(train, "run_one", begin)
    train.main(["env=cartpole", "run_dir=a", "resume=auto"])
    assert (outcomes[0].status, outcomes[0].exit_status) == ("in use", 2)
    assert f"border-train: {folder / 'a'} is in use by process " in capsys.readouterr().err


def test_a_run_that_has_begun_since_the_checks_of_a_new_one_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []

    def begin(job: Job) -> Outcome:
        stopped(job.folder)
        outcomes.append(train_or_refuse(job))
        return outcomes[0]

    monkeypatch.setattr(train, "run_one", begin)
    train.main(["env=cartpole", "run_dir=a"])
    assert "a already contains a run: choose another run_dir" in outcomes[0].reason
    assert facts_of(folder / "a")["status"] == "interrupted"


def test_a_link_inside_of_a_run_directory_is_refused_before_anything_is_opened(
    folder: Path, ran: Ran, refusal: Refusal
) -> None:
    ran("run_dir=a", "env=cartpole")
    stopped(folder / "a")
    (folder / "victim").mkdir()
    (folder / "a" / "checkpoints" / "replay").symlink_to("../../victim")
    for typed in (["resume=a"], ["resume=auto", "run_dir=a", "env=cartpole"]):
        assert f"checkpoints/replay is a link to {folder / 'victim'}" in refusal(*typed)


@pytest.mark.parametrize(
    ("link", "typed"),
    sampled(
        [
            ("b/border-train.log", ["run_dir=b"]),
            ("b/.hydra", ["run_dir=b"]),
            (f"s/{JOB_1}/metrics.jsonl", ["-m", "run_dir=s", "seed=0,1"]),
            ("s/sweep.csv", ["-m", "run_dir=s", "seed=0,1"]),
        ],
        every=3,
    ),
)
def test_a_link_that_awaits_a_new_run_is_refused(
    link: str, typed: list[str], folder: Path, refusal: Refusal
) -> None:
    (folder / link).parent.mkdir(parents=True)
    (folder / link).symlink_to(folder / "target")
    assert f"{link} is a link to {folder / 'target'}" in refusal("env=cartpole", *typed)


@pytest.mark.slow
def test_a_finished_run_is_reported_and_left_alone(folder: Path, ran: Ran, capsys: Capture) -> None:
    ran("run_dir=a", "env=cartpole", "trainer.max_opt_steps=90")
    stopped(folder / "a", "done", best_score=487.3499999999999)
    before = everything(folder)
    auto = ("resume=auto", "run_dir=a", "env=cartpole", "trainer.max_opt_steps=90")
    line = (
        "a is finished with score 487.35: max_opt_steps reached; set a larger limit, such as "
        "trainer.max_opt_steps,"
    )
    for typed in (("resume=a",), auto, (*auto, "trainer.max_opt_steps=80")):
        assert ran(*typed).configs == []
        assert capsys.readouterr().out == f"{line} to continue\n"
    assert everything(folder) == before
    for limit, typed in enumerate((("resume=a",), auto), start=91):
        assert ran(*typed, f"trainer.max_opt_steps={limit}").earlier[0].resumes


def test_a_finished_run_without_checkpoints_cannot_go_on(
    folder: Path, ran: Ran, refusal: Refusal
) -> None:
    ran("run_dir=a", "env=cartpole", "trainer.max_opt_steps=90")
    write_json(
        folder / "a" / "run.json", {"status": "done", "exit_reason": "max_opt_steps reached"}
    )
    said = refusal("resume=a", "trainer.max_opt_steps=91")
    assert f"{folder / 'a'} is finished, but has no checkpoint to resume from" in said


@pytest.mark.parametrize(
    ("ended_by", "before", "now", "goes_on"),
    sampled(
        [
            ("max_opt_steps", {"max_opt_steps": 9}, {"max_opt_steps": 10}, True),
            ("max_opt_steps", {"max_opt_steps": 9}, {"max_opt_steps": 8}, False),
            ("max_opt_steps", {"max_opt_steps": 9}, {"max_opt_steps": None, "max_time_s": 1}, True),
            ("max_opt_steps", {"max_opt_steps": 9, "max_time_s": 1}, {"max_time_s": 2}, False),
            ("stop_at_score", {"stop_at_score": 9}, {"stop_at_score": None}, True),
            ("stop_at_score", {"stop_at_score": 9, "stop_evals": 2}, {"stop_evals": 3}, True),
        ],
        every=4,
    ),
)
def test_a_run_goes_on_once_the_limit_that_ended_it_has_grown(
    ended_by: str, before: dict[str, Any], now: dict[str, Any], goes_on: bool, folder: Path
) -> None:
    stopped(folder, "done", exit_reason=f"{ended_by} reached")
    typed = [
        [f"trainer.{name}={'null' if value is None else value}" for name, value in limits.items()]
        for limits in (before, before | now)
    ]
    saved, config = (compose("env=cartpole", "~tuned", *overrides) for overrides in typed)
    write_resolved(folder, resolved_yaml(saved))
    config.resume = "auto"
    earlier = RunFolder(folder).check_earlier_run(config, lambda _: Differences(saved.trainer))
    assert earlier.finished != goes_on


@pytest.mark.parametrize(
    ("argv", "said"),
    sampled(
        [
            (["resume=x"], "x is not a run directory: there is no .hydra"),
            (["-m", "resume=a"], "-m runs several"),
            (["resume=a", "hydra.run.dir=b"], "do not set hydra.run.dir"),
            (["resume=a", "-cn", "own"], "a resumed run uses its own settings"),
            (["-cd", ".", "-cn", "own"], "give the run to resume on the command line"),
        ],
        every=3,
    ),
)
def test_a_resume_that_cannot_be_meant_is_refused(
    argv: list[str], said: str, folder: Path, ran: Ran, refusal: Refusal
) -> None:
    ran("run_dir=a", "env=cartpole")
    (folder / "own.yaml").write_text(
        "defaults: [config, override env: cartpole, _self_]\nresume: a\n"
    )
    assert said in refusal(*argv)


@pytest.mark.parametrize(
    "name",
    sampled(["run", "a b", "a,b", "it's", "[x]", "a=b", "(c)", "ü", "e\\", "b\\'c", "#1"], every=6),
)
def test_the_command_that_is_printed_leads_to_the_same_folder(
    name: str, folder: Path, ran: Ran
) -> None:
    ran("run_dir=a", "env=cartpole")
    (folder / "a").rename(folder / name)
    stopped(folder / name)
    command, *typed = shlex.split(closing.resume_command(folder / name))
    assert command.endswith("border-train")
    assert ran(*typed).jobs[0].folder == folder / name


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a real run of 100 updates; tests work on copies."""
    folder = tmp_path_factory.mktemp("done")
    with commands.isolated(folder):
        assert train_status(*TYPED, "run_dir=a", "quiet=true") == 0
    return folder / "a"


def test_a_larger_budget_goes_on_as_if_it_had_been_given_at_once(
    done: Path, folder: Path, capsys: Capture
) -> None:
    shutil.copytree(done, folder / "a", symlinks=True)
    assert train_status("resume=a", "trainer.max_opt_steps=150", "quiet=false") == 0
    said = capsys.readouterr().out
    assert "\nresumed from   the checkpoint at 100 updates; weights, optimiser, " in said
    assert "changed        quiet: true -> false\n               trainer.max_opt_steps: 100" in said
    whole = (*TYPED, "trainer.max_opt_steps=150", "run_dir=b", "quiet=true")
    assert train_status(*whole) == 0
    rows = [repeatable_rows(folder / name) for name in "ab"]
    evaluated = [
        {row["opt_steps"]: row["eval/return"] for row in run_rows if "eval/return" in row}
        for run_rows in rows
    ]
    steps = (50, 100, 150)
    assert [evaluated[0][step] for step in steps] == [evaluated[1][step] for step in steps]
    assert load_resolved(folder / "a").trainer.max_opt_steps == 150
    assert facts_of(folder / "a")["opt_steps"] == 150
    # the next resume uses the new budget
    assert train_status("resume=a") == 0
    assert "max_opt_steps reached" in capsys.readouterr().out


def test_damaged_checkpoints_are_named_and_never_a_silent_start(
    done: Path, folder: Path, capsys: Capture
) -> None:
    shutil.copytree(done, folder / "a", symlinks=True)
    agents = sorted((folder / "a" / "checkpoints").glob("[0-9]*/agent.npz"))
    for path in agents:
        path.write_bytes(b"")
    saved = everything(folder / "a" / "checkpoints") | everything(folder / "a" / ".hydra")
    auto = (*TYPED, "run_dir=a", "resume=auto", "quiet=true")
    for typed in (("resume=a",), auto):
        assert train_status(*typed, "trainer.max_opt_steps=150", "quiet=false") == 2
        said = capsys.readouterr().out
        assert all(str(path) in said for path in agents)
        assert "border-train resume=" not in said
    assert everything(folder).items() >= saved.items()


def test_without_a_checkpoint_a_run_starts_over_and_takes_no_file_of_the_user(
    done: Path, folder: Path, capsys: Capture
) -> None:
    shutil.copytree(done, folder / "a", symlinks=True)
    shutil.rmtree(folder / "a" / "checkpoints")
    facts = facts_of(folder / "a")
    write_json(folder / "a" / "run.json", facts | {"status": "running"})  # as if killed
    (folder / "a" / "events.out.tfevents.1.host.1.0").touch()
    assert train_status(*TYPED, "run_dir=a", "resume=auto", "seed=9") == 0
    assert "removed an attempt without a checkpoint" in capsys.readouterr().out
    assert load_resolved(folder / "a").seed == 9
    assert [attempt["from_opt_steps"] for attempt in facts_of(folder / "a")["attempts"]] == [0]
    assert (folder / "a" / "events.out.tfevents.1.host.1.0").is_file()


def test_an_interrupted_run_ends_with_the_command_that_goes_on(
    folder: Path, capsys: Capture
) -> None:
    kwargs = f"env.kwargs={{signum: {int(signal.SIGTERM)}, at: 60}}"
    assert train_status(*ENDLESS, kwargs, "run_dir=my run", "device=cpu") == 143
    (following,) = re.findall(r"^next +(.*)$", capsys.readouterr().out, re.MULTILINE)
    command, *typed = shlex.split(following)
    assert (Path(command).name, typed) == ("border-train", ["resume=my run"])
    steps = facts_of(folder / "my run")["opt_steps"]
    assert train_status(*typed, f"trainer.max_opt_steps={steps + 5}") == 0
    said = capsys.readouterr().out
    assert f"\nresumed from   the checkpoint at {steps} updates; weights, optimiser, " in said
    facts = facts_of(folder / "my run")
    assert (facts["status"], facts["opt_steps"]) == ("done", steps + 5)
    assert "resume=" not in said.rpartition("\nnext ")[2]
