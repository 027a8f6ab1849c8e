"""The names of folders."""

from __future__ import annotations

from pathlib import Path

from border_cli.config.interpolation import MAX_FOLDER_NAME, either, job_folder


def test_a_given_folder_replaces_the_usual_one() -> None:
    assert either(None, "outputs/x") == "outputs/x"
    assert either("mine", "outputs/x") == "mine"
    assert either("~/mine", "x") == str(Path.home() / "mine")


def test_jobs_are_numbered_where_the_sweep_has_no_folder_of_its_own() -> None:
    assert job_folder(None, 3, "agent=dqn,seed=0") == "3"


def test_jobs_are_named_by_their_overrides_in_a_folder_of_their_own() -> None:
    assert job_folder("s", 3, "agent=dqn,seed=0") == "agent-dqn__seed-0"
    assert job_folder("s", 4, "agent=dqn,seed=0") == "agent-dqn__seed-0"
    assert job_folder("s", 0, "") == "defaults"


def test_what_a_name_cannot_hold_is_told_apart_by_a_digest() -> None:
    names = {
        job_folder("s", 0, overrides)
        for overrides in ("agent.hidden=[1,2]", "agent.hidden=[1.2]", "x=a b", "x=a/b", "x=a__b")
    }
    assert len(names) == 5
    assert not any(set(name) & set("[], /") for name in names)


def test_a_long_name_is_cut_and_told_apart() -> None:
    names = {job_folder("s", 0, f"name={'x' * 300}{end}") for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) == MAX_FOLDER_NAME + 9
