"""Saved settings compose to the same config; what `resolved_yaml` never writes is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.config.job import resolved_yaml, write_resolved
from border_cli.config.open_composer import open_composer
from border_cli.config.saved import load_resolved, read_saved
from border_cli.config.sweep import sweep_terms
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError
from border_cli.replay_buffer.config import PrioritizedConfig
from border_cli.settings.run import RunConfig
from border_cli.system.files import SETTINGS
from tests.support.case_sampling import sampled

Write = Callable[[str, str], Path]

CHOICES = (
    "env=cartpole",
    "replay_buffer=prioritized",
    "recorder=[jsonl]",
    "actor_manager.exploration=[0.1,{epsilon: {initial: 1, final: 0.1}}]",
    "env.kwargs={a: {b: [1, x]}}",
    "evaluator.env.max_episode_steps=7",
    "agent.learning_rate=1e-5",
    "name=n 1",
)

composed = cache(compose)  # no test modifies a config


def test_a_saved_config_gives_the_same_run(folder: Path, write: Write) -> None:
    config = composed(*CHOICES)
    write("frozen.yaml", resolved_yaml(config))
    write_resolved(folder / "run", resolved_yaml(config))
    assert load_resolved(folder / "run") == config
    again = compose(config_dir=str(folder), config_name="frozen")
    assert again == config
    assert isinstance(again.replay_buffer, PrioritizedConfig)
    assert resolved_yaml(again) == resolved_yaml(config)


def test_a_saved_config_forgets_where_it_was_written() -> None:
    config = compose("env=cartpole", "run_dir=somewhere", "resume=auto")
    assert resolved_yaml(config) == resolved_yaml(composed("env=cartpole"))


def test_a_saved_config_is_checked(folder: Path, write: Write) -> None:
    text = resolved_yaml(composed("env=cartpole"))
    write("run/.hydra/resolved.yaml", text.replace("gamma: 0.99", "gama: 0.99"))
    with pytest.raises(ConfigError, match=r"resolved.yaml: unknown setting 'agent.gama'"):
        load_resolved(folder / "run")
    write("run/.hydra/resolved.yaml", text.replace("gamma: 0.99", "gamma: 3"))
    with pytest.raises(ConfigError, match=r"resolved.yaml: agent.gamma must be at least 0"):
        load_resolved(folder / "run")


def test_a_saved_config_takes_values_and_sweeps_and_no_other_component(
    folder: Path, write: Write
) -> None:
    write("frozen.yaml", resolved_yaml(composed("env=cartpole")))
    composer = Composer([f"file://{folder}"], "frozen")
    assert sweep_terms(composer, ["seed=1,2", "agent.gamma=0.5"]).jobs == [
        ["seed=1", "agent.gamma=0.5"],
        ["seed=2", "agent.gamma=0.5"],
    ]
    assert composer.job(["agent.gamma=0.5"]).config.agent.gamma == 0.5
    with pytest.raises(ConfigError, match="Could not override 'agent'"):
        composer.job(["agent=random"])
    with pytest.raises(ConfigError, match=r"unknown setting 'agent.gama'"):
        composer.job(["agent.gama=1"])


def with_kwargs(**kwargs: Any) -> RunConfig:
    config = composed("env=cartpole")
    assert isinstance(config.env, GymConfig)
    return replace(config, env=replace(config.env, kwargs=kwargs))


@pytest.fixture
def edited(write: Write) -> Callable[[str, str], Path]:
    """Writes a run whose saved settings were edited by hand; returns its directory."""

    def _edited(before: str, after: str) -> Path:
        text = resolved_yaml(composed("env=cartpole"))
        assert before in text
        return write(f"run/{SETTINGS}", text.replace(before, after)).parent.parent

    return _edited


def resumed(run_dir: Path) -> RunConfig:
    with open_composer([f"resume={run_dir}"]) as (composer, words):
        return composer.job(words).config


@pytest.mark.parametrize(
    ("before", "after", "said"),
    sampled(
        [
            ("seed: 0\n", "seed: 0\nhydra: {job: {chdir: true}}\n", "hydra is not read from a run"),
            (
                "- _self_\n",
                "- override hydra/launcher: basic\n- _self_\n",
                "which a run never saves",
            ),
            (
                "- _self_\n",
                "- /experiment/mine\n- _self_\n",
                "has '/experiment/mine', which a run never",
            ),
            ("- _self_\n", "- /schema/hydra/x@hydra\n- _self_\n", "which a run never saves"),
            ("/gym@env", "/gym@hydra.job_logging", "which a run never saves"),
            (
                "name: dqn_cartpole",
                "name: ${oc.env:HOME}",
                "${oc.env:HOME} is an interpolation",
            ),
            ("seed: 0", r"seed: \\${x}", "\\\\${x} is an interpolation"),
            ("seed: 0", "seed: &x 0\nobjective: *x", "has an alias, which a run never writes"),
            (
                "seed: 0",
                "seed: !!python/object/apply:os.getpid []",
                "could not determine a constructor for the tag",
            ),
            ("seed: 0", "trust: true", "unknown setting 'trust'"),
        ],
        every=6,
    ),
)
def test_what_no_run_saves_is_refused_by_name(
    edited: Callable[[str, str], Path], before: str, after: str, said: str
) -> None:
    run_dir = edited(before, after)
    for read in (load_resolved, resumed):
        with pytest.raises(ConfigError, match=re.escape(said)):
            read(run_dir)


def test_files_beside_the_saved_settings_are_not_composed(
    edited: Callable[[str, str], Path], write: Write
) -> None:
    run_dir = edited("seed: 0", "seed: 3")
    write("run/.hydra/hydra_settings.yaml", "# @package _global_\nimports: [their_module]\n")
    write("run/.hydra/schema/run.yaml", "imports: [their_module]\n")
    config = load_resolved(run_dir)
    assert (config.seed, config.imports) == (3, [])


@pytest.mark.parametrize(
    "value",
    sampled(
        [
            "${x}",
            "${oc.env:HOME}",
            r"\${x}",
            r"\\${x}",
            "x${",
            "$${}",
            ["${y}", {"z": "${"}],
            "C:\\d",
        ],
        every=8,
    ),
)
def test_what_looks_like_an_interpolation_comes_back_as_it_was(folder: Path, value: Any) -> None:
    config = with_kwargs(a=value)
    write_resolved(folder / "run", resolved_yaml(config))
    assert load_resolved(folder / "run") == config
    again = compose(config_dir=str(folder / "run" / ".hydra"), config_name="resolved")
    assert again == config
    assert resolved_yaml(again) == resolved_yaml(config)


def test_what_is_written_never_has_an_alias_and_may_hold_paths_and_bytes(folder: Path) -> None:
    shared, path = [1, {"deep": [2]}], Path("x")
    config = with_kwargs(a=shared, b=shared, c=[shared, path], path=path, data=b"\x00\xff")
    write_resolved(folder / "run", resolved_yaml(config))
    assert not re.search(r"[&*]id\d", (folder / "run" / SETTINGS).read_text())
    assert load_resolved(folder / "run") == config


def test_saved_settings_need_a_defaults_list(write: Write) -> None:
    for text in ("- 1\n", "seed: 0\n", "", "defaults: x\n"):
        with pytest.raises(ConfigError, match="is not a saved configuration: it has no defaults"):
            read_saved(write("resolved.yaml", text))
    with pytest.raises(ConfigError, match=r"resolved\.yaml: not valid YAML: "):
        read_saved(write("resolved.yaml", "a: [1\n"))
