"""Runs that were saved before integers of observations went by the bounds of their space.

`old_run.tar.xz` is one that the code of then made: dqn on `Catch-v0` with 6 x 6 bytes of 0 or 1,
which it divided by 255 and gave to dense layers; 20 updates, saved. Beside it lie `answers.npz`,
the action values and returns of its last model, and what the same run had learned after 40 updates.
"""

from __future__ import annotations

import json
import logging
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from commands import eval_status
from sampling import sampled

from border_cli.agent.torch_agent import TorchAgent
from border_cli.api import load_agent, resume, train
from border_cli.config.compose import compose
from border_cli.core.errors import CheckpointError
from border_cli.core.interfaces import Agent
from border_cli.launch.build import build_agent, encoders_of, env_factory
from border_cli.launch.effective import effective_settings

SAVED = Path(__file__).parent / "support" / "old_run.tar.xz"
SETTINGS = (
    *("agent=dqn", "env.id=catch:Catch-v0", "env.kwargs={dtype:uint8,side:6}", "agent.hidden=[4]"),
    *("agent.batch_size=4", "trainer=sync", "trainer.warmup_period=10", "recorder=none"),
    *("trainer.max_opt_steps=1", "evaluator.num_episodes=1", "quiet=true"),
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    with commands.isolated(tmp_path), tarfile.open(SAVED) as archive:
        archive.extractall(tmp_path, filter="data")
        yield tmp_path / "run"


def answers(run_dir: Path) -> dict[str, Any]:
    with np.load(run_dir / "answers.npz") as saved:
        return dict(saved)


def values(agent: Agent, run_dir: Path) -> tuple[Any, Any]:
    """Action values of the agent, and those of the code of then."""
    assert isinstance(agent, TorchAgent)
    saved = answers(run_dir)
    obs = np.unpackbits(saved["obs"])[: 16 * 72].reshape(16, 6, 6, 2)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    return policy.network(obs), saved["q"]


def test_a_model_of_then_computes_what_it_did(run_dir: Path) -> None:
    agent = load_agent(run_dir, "latest")[1]
    assert encoders_of(agent) == []
    np.testing.assert_allclose(*values(agent, run_dir), rtol=1e-5)


def test_it_is_judged_as_it_was(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert eval_status(str(run_dir), "checkpoint=latest", "episodes=20", "seed=1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["returns"] == answers(run_dir)["returns"].tolist()


@pytest.mark.slow
def test_its_run_goes_on_as_it_would_have_gone_on_then(run_dir: Path) -> None:
    result = resume(run_dir, "trainer.max_opt_steps=40")
    state = result.agent.state_dict()
    assert (state["opt_steps"], state["encoding"]) == (40, "bytes")
    for name, weight in state["online"].items():
        expected = answers(run_dir)[f"whole.{name}"]
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-4, atol=1e-6)
    # And once more, from a checkpoint of today.
    again = resume(run_dir, "trainer.max_opt_steps=41").agent.state_dict()
    assert (again["opt_steps"], again["encoding"]) == (41, "bytes")
    assert load_agent(run_dir, "latest")[1].state_dict()["encoding"] == "bytes"


@pytest.mark.parametrize("network", sampled(["auto", "mlp"], every=2))
def test_a_new_run_that_begins_with_it_takes_observations_as_it_did(
    network: str, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = compose(*SETTINGS, f"agent.network={network}", f"init_from={run_dir}")
    with caplog.at_level(logging.INFO):
        result = train(replace(config, run_dir="new"))
    assert result.agent.state_dict()["encoding"] == "bytes"
    assert "observations are encoded as in earlier versions" in caplog.text
    assert load_agent(Path("new"), "latest")[1].state_dict()["encoding"] == "bytes"


def test_it_is_refused_by_networks_that_take_observations_otherwise(run_dir: Path) -> None:
    saved = load_agent(run_dir, "latest")[1].state_dict()
    config = compose(*SETTINGS, "agent.network=mlp")
    today = build_agent(effective_settings(config), env_factory(effective_settings(config)).spec)
    match = "was trained on integers divided by 255 .*, but .* take them scaled by their bounds"
    for state in (saved, {name: each for name, each in saved.items() if name != "encoding"}):
        with pytest.raises(CheckpointError, match=match):
            today.load_state_dict(state)
        with pytest.raises(CheckpointError, match=match):
            today.load_weights(state)
    today.load_state_dict(today.state_dict())


def test_where_all_of_a_byte_counts_models_of_then_are_those_of_today() -> None:
    def built(kwargs: str) -> Agent:
        config = compose(*SETTINGS, f"env.kwargs={kwargs}")
        return build_agent(effective_settings(config), env_factory(effective_settings(config)).spec)

    for kwargs in ("{dtype:uint8,high:255,flat:true}", "{dtype:uint8,high:255,side:36}"):
        state = dict(built(kwargs).state_dict())
        del state["encoding"]
        built(kwargs).load_state_dict(state)
