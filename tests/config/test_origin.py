"""`--from RUN_DIR`: a new run with the settings of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from border_cli.analysis.load import load_runs
from border_cli.config.compose import compose
from border_cli.config.job import resolved_yaml, write_resolved
from border_cli.config.open_composer import open_composer
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import BorderError
from border_cli.replay_buffer.config import PrioritizedConfig
from border_cli.settings.run import RunConfig
from tests.support.commands import QUICK, isolated, train_status

FIRST = (
    *("agent=dqn", "env=cartpole", "agent.gamma=0.9", "step_processor.n_steps=5"),
    *("replay_buffer.capacity=700", "trainer.warmup_period=50"),
)


@cache
def saved(*typed: str) -> tuple[str, RunConfig]:
    config = compose(*typed)
    return resolved_yaml(config), config


@pytest.fixture
def first(folder: Path) -> Callable[..., RunConfig]:
    """Writes the settings of a run to the directory `first`, as a command does; returns them."""

    def write(*typed: str) -> RunConfig:
        text, config = saved(*typed)
        write_resolved(folder / "first", text)
        return config

    return write


def compose_from_first(*typed: str) -> RunConfig:
    """Returns the settings of `border-train --from first TYPED`."""
    with open_composer(list(typed), origin="first") as (composer, overrides):
        return composer.job(overrides).config


def test_a_new_run_has_the_settings_of_the_other_with_what_is_typed(
    first: Callable[..., RunConfig],
) -> None:
    before = first(*FIRST)
    assert compose_from_first() == before
    expected = compose(*FIRST, "seed=3", "agent.tau=0.5")
    assert compose_from_first("seed=3", "agent.tau=0.5") == expected


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("agent=rainbow", "rainbow_cartpole"),
        ("env.id=Acrobot-v1", "dqn_Acrobot-v1"),
    ],
)
def test_the_name_follows_what_is_typed(
    typed: str, name: str, first: Callable[..., RunConfig]
) -> None:
    first(*FIRST)
    assert compose_from_first(typed).name == name


def test_an_agent_chooses_options_of_other_groups_and_the_others_stay_as_they_were(
    first: Callable[..., RunConfig],
) -> None:
    first(*FIRST)
    rainbow = compose_from_first("agent=rainbow")
    assert rainbow.replay_buffer == PrioritizedConfig()
    assert rainbow.step_processor == compose("agent=rainbow").step_processor
    assert rainbow.trainer.warmup_period == 50
    assert compose_from_first("agent=qrdqn").replay_buffer.capacity == 700


def test_a_sweep_starts_from_a_run(first: Callable[..., RunConfig]) -> None:
    first(*FIRST)
    typed = ["agent=dqn,rainbow", "seed=1,2"]
    with open_composer(typed, origin="first", multirun=True) as (composer, overrides):
        jobs = sweep_terms(composer, overrides).jobs
        assert jobs is not None
        assert len(jobs) == 4
        last = composer.job(jobs[-1], 3).config
    assert (last.name, last.seed) == ("rainbow_cartpole", 2)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("agent.gama=1", r"did you mean agent\.gamma\?"),
        ("experiment=cartpole_per", "Could not override 'experiment'"),
        ("resume=first", "--from RUN_DIR starts a new run and resume=RUN_DIR continues one"),
        ("seed=1,2", "add -m"),
    ],
)
def test_what_cannot_be_typed_beside_it_is_refused(
    typed: str, message: str, first: Callable[..., RunConfig]
) -> None:
    first(*FIRST)
    with pytest.raises(BorderError, match=message):
        compose_from_first(typed)


@pytest.mark.slow
def test_a_run_that_was_started_from_another_trains(tmp_path: Path) -> None:
    with isolated(tmp_path):
        assert train_status(*QUICK, "agent=qrdqn", "env=cartpole", "run_dir=first") == 0
        assert train_status("--from", "first", "seed=5", "run_dir=second") == 0
    first, second = load_runs(tmp_path)
    assert second.status == "done"
    assert second.settings == {**first.settings, "seed": 5}
    assert "--from" in json.loads((tmp_path / "second" / "run.json").read_text())["command"]


def test_a_job_of_a_sweep_keeps_what_it_would_keep_alone(first: Callable[..., RunConfig]) -> None:
    first(*FIRST)
    agents = ("dqn", "rainbow")  # only rainbow's file chooses a replay buffer
    typed = [f"agent={','.join(agents)}"]
    with open_composer(typed, origin="first", multirun=True) as (composer, overrides):
        terms = sweep_terms(composer, overrides)
        assert terms.jobs is not None
        jobs = jobs_of(composer, terms.jobs, terms)
    assert [job.config for job in jobs] == [compose_from_first(f"agent={name}") for name in agents]
