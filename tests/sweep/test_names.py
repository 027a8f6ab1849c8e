"""Folder names of sweep jobs, and how later commands find these folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from border_cli.config.compose import Composer
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError
from border_cli.run.sweep_folder import SweepPlan, read_sweep, write_sweep
from border_cli.sweep.names import (
    MAX_FOLDER_NAME,
    JobFolders,
    make_sweep_job,
    merge_plan,
    shared_overrides,
    split_override,
)
from border_cli.sweep.plan import plan_sweep

BASE = ("env=cartpole", "run_dir=S")


pytestmark = pytest.mark.usefixtures("folder")


def jobs_of(*typed: str) -> list[tuple[list[str], str]]:
    """Returns the overrides and the folder of every job."""
    jobs = sweep_terms(Composer(), [*BASE, *typed]).jobs
    assert jobs is not None
    places = JobFolders(Path("S"), shared_overrides(jobs), named=True)
    return [(overrides, places.folder_of(overrides, 0).name) for overrides in jobs]


def folders(*typed: str) -> list[str]:
    return [folder for _, folder in jobs_of(*typed)]


def write_plan(*typed: str) -> SweepPlan:
    """Writes `sweep.json` as a command does; the folders of later commands depend on it."""
    jobs = jobs_of(*typed)
    listed = [make_sweep_job(number, *job) for number, job in enumerate(jobs)]
    before = read_sweep(Path("S"))
    common = shared_overrides([overrides for overrides, _ in jobs])
    command = ["border-train"]
    plan = merge_plan(listed, before, command=command, launcher="basic", common=common)
    Path("S").mkdir(exist_ok=True)
    write_sweep(Path("S"), plan)
    return plan


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [
        ("env.id='a, b'", "env.id", "a, b"),
        ('name="a=b"', "name", "a=b"),
        ("env.id=a\\,b", "env.id", "a,b"),
        ("agent.gamma=null", "agent.gamma", "null"),
        ("agent.hidden=[4,5]", "agent.hidden", "[4,5]"),
        ("+env.kwargs.x=true", "env.kwargs.x", "true"),
        ("~tuned", "~tuned", ""),
    ],
)
def test_the_value_of_an_override_is_what_it_means(typed: str, key: str, value: str) -> None:
    assert split_override(typed) == (key, value)


def test_a_folder_is_named_by_what_differs() -> None:
    assert folders("agent=dqn,iqn", "seed=0,1", "trainer.max_opt_steps=9") == [
        "agent-dqn__seed-0",
        "agent-dqn__seed-1",
        "agent-iqn__seed-0",
        "agent-iqn__seed-1",
    ]
    assert folders("agent=dqn", "seed=0,1", "agent.gamma=0.9") == ["seed-0", "seed-1"]


def test_a_later_command_finds_its_jobs_and_names_what_is_new() -> None:
    assert [job.folder for job in write_plan("agent=dqn", "seed=0,1").jobs] == ["seed-0", "seed-1"]
    again = ("resume=auto", "agent=dqn")
    assert folders(*again, "seed=2,1") == ["seed-2", "seed-1"]
    assert folders(*again, "seed=0") == ["seed-0"]
    assert folders(*again, "seed=0", "agent.gamma=0.5,0.6") == [
        JobFolders(Path("new"), [], named=True)
        .folder_of(["seed=0", f"agent.gamma={gamma}"], 0)
        .name
        for gamma in (0.5, 0.6)
    ]


def test_a_limit_of_all_jobs_is_no_part_of_a_name_when_it_grows() -> None:
    write_plan("seed=0,1", "trainer.max_opt_steps=9", "agent.gamma=0.5")
    assert folders("seed=0,1", "trainer.max_opt_steps=99", "agent.gamma=0.5", "resume=auto") == [
        "seed-0",
        "seed-1",
    ]
    other = folders("seed=0,1", "trainer.max_opt_steps=9", "agent.gamma=0.6", "resume=auto")
    assert "seed-0" not in other  # a different discount makes a different run


def test_a_sweep_that_was_numbered_is_continued_by_its_folder() -> None:
    jobs = [make_sweep_job(n, ["env=cartpole", f"seed={n}"], str(n)) for n in (0, 1)]
    common = ["env=cartpole"]
    plan = merge_plan(jobs, command=["border-train"], launcher="basic", common=common)
    Path("S").mkdir()
    write_sweep(Path("S"), plan)
    assert folders("seed=1,0,2", "resume=auto") == ["1", "0", "seed-2"]


def test_a_second_command_keeps_numbers_and_adds_no_column_for_itself() -> None:
    write_plan("seed=0,1")
    plan = write_plan("seed=2,1", "resume=auto", "quiet=true")
    assert [(job.number, job.folder) for job in plan.jobs] == [
        (0, "seed-0"),
        (1, "seed-1"),
        (2, "seed-2"),
    ]
    assert plan.swept == ["seed"]
    stops = write_plan("seed=2,1", "resume=auto", "sweep.on_error=stop", "sweep.skip_invalid=true")
    assert (stops.jobs[0], stops.jobs[1].folder, stops.swept) == (plan.jobs[0], "seed-1", ["seed"])
    assert len(stops.jobs) == 3
    assert json.loads(Path("S/sweep.json").read_text())["common"] == ["env=cartpole", "run_dir=S"]


@pytest.mark.parametrize("sweeper", [(), ("hydra.sweeper._target_=another.Sweeper",)])
@pytest.mark.parametrize("name", ["sweep.json", "study.db"])
def test_a_link_in_the_directory_of_a_sweep_refuses_it_whoever_names_its_jobs(
    name: str, sweeper: tuple[str, ...]
) -> None:
    Path("S").mkdir()
    Path("S", name).symlink_to("elsewhere")
    with pytest.raises(ConfigError, match=f"{name} is a link to"):
        plan_sweep(Composer(), [*BASE, "seed=0,1", *sweeper], ["border-train"])


@pytest.mark.parametrize("subdir", ["a/${hydra:job.num}", "../${hydra:job.num}", "/tmp/x"])
def test_a_job_elsewhere_is_refused_as_the_sweep_is_typed(subdir: str) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.subdir must be a name without a slash"):
        plan_sweep(
            Composer(), [*BASE, "seed=0,1", f"hydra.sweep.subdir={subdir}"], ["border-train"]
        )


def test_the_folder_of_a_job_may_be_no_link(tmp_path: Path) -> None:
    Path("S").mkdir()
    Path("S/seed-1").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="S/seed-1 is a symbolic link; a job needs a real"):
        plan_sweep(Composer(), [*BASE, "seed=0,1", "run_dir=S"], ["border-train"])


def folder_name(*overrides: str) -> str:
    return JobFolders(Path("nowhere"), [], named=True).folder_of(overrides, 0).name


def test_jobs_are_named_by_their_overrides_in_a_folder_of_their_own() -> None:
    assert folder_name("seed=0", "agent=dqn") == "agent-dqn__seed-0"
    assert folder_name() == "defaults"


def test_what_a_name_cannot_hold_is_told_apart_by_a_digest() -> None:
    texts = ("agent.hidden=[1,2]", "agent.hidden=[1.2]", "x=a b", "x=a/b", "x=a__b")
    names = set(map(folder_name, texts))
    assert len(names) == 5
    assert not any(set(name) & set("[], /") for name in names)


def test_a_long_name_is_cut_and_told_apart() -> None:
    names = {folder_name(f"name={'x' * 300}{end}") for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) == MAX_FOLDER_NAME + 9
