"""Saved configurations run again, typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.cli.train import main
from border_cli.config.compose import Composer, compose
from border_cli.config.frozen import resolved_yaml, write_resolved
from border_cli.config.saved import load_resolved
from border_cli.core.config import RunConfig
from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.replay_buffer.config import PrioritizedConfig

Write = Callable[[str, str], Path]

CHOICES = (
    "env=cartpole",
    "replay_buffer=prioritized",
    "recorder=[jsonl]",
    "actor_manager.exploration=[0.1,0.2]",
    "env.kwargs={a: {b: [1, x]}}",
    "evaluator.env.max_episode_steps=7",
    "agent.learning_rate=1e-5",
    "name=n 1",
)


def test_a_saved_config_gives_the_same_run(folder: Path, write: Write) -> None:
    config = compose(*CHOICES)
    write("frozen.yaml", resolved_yaml(config))
    again = compose(config_dir=str(folder), config_name="frozen")
    assert again == config
    assert isinstance(again.replay_buffer, PrioritizedConfig)
    assert resolved_yaml(again) == resolved_yaml(config)


def test_a_saved_config_forgets_where_it_was_written() -> None:
    config = compose("env=cartpole", "run_dir=somewhere", "resume=auto")
    assert resolved_yaml(config) == resolved_yaml(compose("env=cartpole"))


def test_what_is_printed_is_what_is_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--cfg", "job", *CHOICES, "--resolve"])
    path = write_resolved(folder / "run", resolved_yaml(compose(*CHOICES)))
    assert path == folder / "run" / ".hydra" / "resolved.yaml"
    assert path.read_bytes().decode() == capsys.readouterr().out
    assert [each.name for each in path.parent.iterdir()] == ["resolved.yaml"]


def test_a_saved_config_is_loaded_from_its_run_directory(folder: Path) -> None:
    config = compose(*CHOICES)
    write_resolved(folder / "a run", resolved_yaml(config))
    assert load_resolved(folder / "a run") == config
    assert load_resolved(folder / "a run" / ".hydra" / "resolved.yaml") == config


def test_a_folder_without_one_is_no_run_directory(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run directory"):
        load_resolved(folder)


def test_a_saved_config_is_checked(folder: Path, write: Write) -> None:
    text = resolved_yaml(compose("env=cartpole"))
    write("run/.hydra/resolved.yaml", text.replace("gamma: 0.99", "gama: 0.99"))
    with pytest.raises(ConfigError, match=r"resolved.yaml: unknown setting 'agent.gama'"):
        load_resolved(folder / "run")
    write("run/.hydra/resolved.yaml", text.replace("gamma: 0.99", "gamma: 3"))
    with pytest.raises(ConfigError, match=r"resolved.yaml: agent.gamma must be at least 0"):
        load_resolved(folder / "run")


def test_a_saved_config_takes_values_and_sweeps_and_no_other_component(
    folder: Path, write: Write
) -> None:
    write("frozen.yaml", resolved_yaml(compose("env=cartpole", "seed=4")))
    composer = Composer([f"file://{folder}"], "frozen")
    jobs = composer.sweep(["seed=1,2", "agent.gamma=0.5"])
    assert jobs is not None
    configs = [composer.job(job, number).config for number, job in enumerate(jobs)]
    assert [(each.seed, each.agent.gamma, each.name) for each in configs] == [
        (1, 0.5, "dqn_cartpole"),
        (2, 0.5, "dqn_cartpole"),
    ]
    said = (
        "agent=random: the configuration 'frozen' has no choice of agent. A saved configuration has"
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        composer.job(["agent=random"])
    with pytest.raises(ConfigError, match=r"unknown setting 'agent.gama'"):
        composer.job(["agent.gama=1"])


def test_every_component_can_be_saved(folder: Path, write: Write) -> None:
    config = compose("agent=random", "trainer=sync", "actor_manager=serial", "recorder=none")
    write("frozen.yaml", resolved_yaml(config))
    again: RunConfig = compose(config_dir=str(folder), config_name="frozen")
    assert again == config
