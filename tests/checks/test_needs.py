"""Memory needs of runs, compared with values worked out by hand, and their limit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from border_cli import checks
from border_cli.checks.needs import (
    MemoryPart,
    Needs,
    refuse_unmet,
    row_nbytes,
    training_needs,
)
from border_cli.config.compose import compose
from border_cli.core.spaces import EnvSpec
from border_cli.errors import ConfigError
from border_cli.launch.build import build_agent, env_factory
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.registry import REPLAY_BUFFERS
from tests.support.datasets import CARTPOLE, datasets_in, write_cartpole


@cache  # settings are immutable
def settings(*overrides: str) -> EffectiveSettings:
    return effective_settings(compose("env=cartpole", *overrides))


def spec_of(effective: EffectiveSettings) -> EnvSpec:
    return env_factory(effective).spec


def needs(*overrides: str) -> dict[str, MemoryPart]:
    effective = settings(*overrides)
    spec = spec_of(effective)
    run_needs = training_needs(effective, spec, build_agent(effective, spec), "the run")
    assert run_needs.nbytes == sum(part.nbytes for part in run_needs.parts)
    return {part.what: part for part in run_needs.parts}


@pytest.mark.parametrize(
    "typed",
    [
        ("env=acrobot",),
        ("env=acrobot", "replay_buffer=prioritized"),
        ("env=acrobot", "replay_buffer=prioritized", "replay_buffer.normalize=buffer"),
    ],
)
def test_a_replay_buffer_is_as_large_as_it_is_counted(typed: tuple[str, ...]) -> None:
    effective = settings(*typed, "replay_buffer.capacity=3000")
    spec = spec_of(effective)
    built = REPLAY_BUFFERS.build(
        effective.config.replay_buffer, spec=spec, rng=np.random.default_rng(0)
    )
    assert 3000 * row_nbytes(effective, spec) == pytest.approx(built.nbytes, rel=0.01)


def test_an_agent_needs_36_bytes_for_each_of_its_parameters() -> None:
    agent = needs("agent.hidden=[100,10]")["agent"]
    parameters = (4 * 100 + 100) + (100 * 10 + 10) + (10 * 2 + 2)
    assert agent.nbytes == 36 * parameters
    assert agent.because.startswith("parameters=1,532, ")
    assert "agent.hidden=[100, 10]" in agent.because


def test_a_data_set_counts_with_its_rows(tmp_path: Path) -> None:
    dataset = f"replay_buffer.dataset={CARTPOLE}"
    with datasets_in(tmp_path):
        rows = write_cartpole(CARTPOLE)
        offline = needs("trainer=offline", dataset)
        both = needs("replay_buffer=dataset", dataset, "replay_buffer.capacity=1000")
    assert offline.keys() == {"data set", "agent"}
    assert offline["data set"].nbytes == both["data set"].nbytes == 48 * rows
    assert offline["data set"].because.startswith(f"{dataset}, {rows} transitions")
    assert both["replay buffer"].nbytes == 48_000


def needing(*nbytes: int, name: str = "the run") -> Needs:
    return Needs(
        name=name, parts=[MemoryPart(f"part {i}", n, f"a={n}") for i, n in enumerate(nbytes)]
    )


def test_needs_of_up_to_nine_tenths_of_free_memory_are_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks.needs, "free_memory", lambda: 1000)
    refuse_unmet([])
    refuse_unmet([needing(500, 400)])
    with pytest.raises(ConfigError, match="of memory"):
        refuse_unmet([needing(500, 401)])
