"""`border-train`: the jobs that a command line starts, and the command lines it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.cli.flags import read_arguments
from border_cli.config.saved import load_resolved
from border_cli.config.tuned import tuned_files
from border_cli.errors import ConfigError
from tests.support.case_sampling import sampled


@pytest.mark.parametrize(
    "argv",
    [
        ["-m", "-cd", "d", "agent=dqn", "seed=1,2"],
        ["agent=dqn", "-m", "seed=1,2", "--config-dir", "d"],
        ["agent=dqn", "seed=1,2", "--config-dir=d", "--multirun"],
    ],
)
def test_flags_and_overrides_come_in_any_order(argv: list[str]) -> None:
    arguments = read_arguments(argv)
    assert (arguments.multirun, arguments.config_dirs) == (True, ["d"])
    assert arguments.overrides == ["agent=dqn", "seed=1,2"]
    assert arguments.hydra_arguments(arguments.overrides)[-2:] == ["agent=dqn", "seed=1,2"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--agent=dqn"], "unrecognized arguments: --agent=dqn .*settings have no dash"),
        (["--cfg", "jobs"], "invalid choice: 'jobs'"),
        (["--cfg", "job", "-m"], "give one of them"),
        (["--resolve"], "--resolve requires --cfg job"),
        (["--cfg", "hydra", "--resolve"], "--resolve requires --cfg job"),
    ],
)
def test_unknown_flags_and_those_that_do_not_fit_together_are_refused(
    argv: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_arguments(argv)


def test_a_job_gets_typed_settings_and_says_where_they_came_from(
    folder: Path, ran: Callable[..., Any]
) -> None:
    (job,) = ran("env=cartpole", "seed=3").jobs
    assert (job.config.env.id, job.config.seed) == ("CartPole-v1", 3)
    assert job.folder.parent == folder / "outputs" / "dqn_cartpole"
    assert job.command == ("border-train", "env=cartpole", "seed=3")
    (tuned,) = tuned_files(job.sources)
    assert tuned.endswith("tuned/dqn_cartpole.yaml")
    assert job.import_paths == ()  # no user module is needed
    assert load_resolved(job.folder) == job.config
    written = {path.name for path in (job.folder / ".hydra").iterdir()}
    assert written == {"config.yaml", "overrides.yaml", "resolved.yaml"}


def test_a_first_file_cannot_ask_for_a_sweep(folder: Path, refusal: Callable[..., str]) -> None:
    text = "defaults: [config, override env: cartpole, _self_]\nhydra: {mode: MULTIRUN}\n"
    (folder / "all.yaml").write_text(text)
    assert "hydra.mode must be RUN: -m runs several jobs" in refusal("-cd", ".", "-cn", "all")


def test_a_used_folder_needs_resume(
    folder: Path, refusal: Callable[..., str], ran: Callable[..., Any]
) -> None:
    ran("run_dir=a", "env=cartpole")
    assert "a already contains a run: choose another" in refusal("run_dir=a", "env=cartpole")
    assert "contains a single run" in refusal("-m", "run_dir=a", "env=cartpole", "resume=auto")
    again = ran("run_dir=a", "env=cartpole", "resume=auto", "seed=1")
    assert again.jobs[0].folder == folder / "a"
    assert "seed=1" in again.jobs[0].record["overrides.yaml"]


@pytest.mark.slow
def test_a_used_folder_of_a_sweep_needs_resume(
    folder: Path, refusal: Callable[..., str], ran: Callable[..., Any]
) -> None:
    ran("-m", "run_dir=s", "env=cartpole", "seed=0")
    (folder / "s" / "sweep.json").touch()
    assert "already contains a sweep" in refusal("-m", "run_dir=s", "env=cartpole", "seed=1")
    assert "contains a sweep" in refusal("run_dir=s", "env=cartpole")


def test_a_folder_with_a_run_json_is_used(folder: Path, refusal: Callable[..., str]) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "run.json").write_text("{}")
    assert "b already contains a run: choose another" in refusal("run_dir=b", "env=cartpole")
    assert "(Not a directory)" in refusal("run_dir=b/run.json/x", "env=cartpole")


@pytest.mark.parametrize(
    ("argv", "said"),
    sampled(
        [
            (
                [],
                "one of acrobot, ant, beam_rider, breakout, cartpole, dm_control, enduro",
            ),
            (["env=cartpole", "+agent.gama=1"], "unknown setting 'agent.gama', did you mean"),
            (["env=cartpole", "resume=auto"], "resume=auto needs run_dir=DIR"),
            (["-m", "env=cartpole", "run_dir=a,b"], "run_dir takes one value"),
            (
                ["-m", "env=cartpole", "agent.gamma=0.5,0.6,7"],
                "must be at least 0 and at most 1, got 7",
            ),
            (["-m", "env=cartpole", "agent.gama=1,2"], "unknown setting 'agent.gama'"),
            (["-m", "env=glob(zzz*)"], "the sweep has no job: env=glob(zzz*)"),
            (["-m", "env=cartpole", "seed=interval(1,2)"], "does not support sweep type"),
            (["-m", "run_dir=s", "env=cartpole", "seed=1,1"], "give each value only once"),
            (["-cd", "nowhere"], "--config-dir: no such directory: "),
            (["env=cartpole", "env.kwargs.suton=1"], "unexpected keyword argument 'suton'"),
            (["env.id=Pendulum-v1"], "Pendulum-v1"),
            (["-m", "seed=0,1", "env=cartpole", "env.kwargs.suton=1"], "argument 'suton'"),
            (["agent=dqm", "--help"], "did you mean dqn?"),
            (["-sc", "install=csh"], "unknown shell 'csh'"),
        ],
        every=4,
    ),
)
def test_a_refusal_leaves_nothing_behind(
    argv: list[str], said: str, refusal: Callable[..., str]
) -> None:
    assert said in refusal(*argv)
