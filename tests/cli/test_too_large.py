"""What does not fit in memory: refused before it is allocated, or a message where it fails."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import QUICK, facts_of, train_status
from sampling import sampled

from border_cli.registry import AGENTS, register_builtin
from border_cli.run.finding import steps_saved

Capture = pytest.CaptureFixture[str]

VAST = ("imports=[unruly]", "env.id=Vast-v0")
GREEDY = ("imports=[unruly]", "env.id=Greedy-v0", *QUICK, "run_dir=run", "trainer.eval_interval=0")
THOUSANDS = "agent.hidden=[100000, 100000]"
HUNGRY_AGENT = """\
from dataclasses import dataclass

import torch

from border_cli.agent.config import DqnConfig
from border_cli.agent.dqn import Dqn
from border_cli.registry import AGENTS


@dataclass(kw_only=True)
class HungryConfig(DqnConfig):
    pass


class Hungry(Dqn):
    def update(self, batch):
        if self.opt_steps == 20:
            torch.empty(10**16)
        return super().update(batch)


AGENTS.register("hungry", HungryConfig, "hungry_agent:Hungry")
"""


@pytest.fixture
def hungry_agent(folder: Path) -> Iterator[None]:
    """A plug-in of the user that wants more memory than there is at its update 20."""
    register_builtin()
    before = dict(AGENTS._entries)
    (folder / "hungry_agent.py").write_text(HUNGRY_AGENT)
    (folder / "conf" / "agent").mkdir(parents=True)
    settings = "defaults: [/schema/agent/hungry@_here_, _self_]\n"
    (folder / "conf" / "agent" / "hungry.yaml").write_text(settings)
    yield
    AGENTS._entries = before
    sys.modules.pop("hungry_agent", None)


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            (("env=cartpole", "agent.hidden=[100000,100000]"), THOUSANDS),
            (("env=cartpole", "agent.hidden=[100000,100000]", "dry_run=true"), THOUSANDS),
            (("-m", "seed=0,1", "env=cartpole", "agent.hidden=[100000,100000]"), THOUSANDS),
            (("env=pendulum", "agent=sac", "agent.num_critics=100000000"), "agent.num_critics="),
            (("env=cartpole", "agent.num_atoms=1000000000"), "agent.num_atoms=1000000000"),
            ((*VAST, "+env.kwargs.states=1000000000"), "agent.hidden="),
        ],
        every=5,
    ),
)
def test_an_agent_that_does_not_fit_is_refused_with_numbers_and_settings(
    folder: Path, capsys: Capture, typed: tuple[str, ...], said: str
) -> None:
    assert train_status(*typed, "run_dir=run", "device=cpu") == 2
    error = capsys.readouterr().err
    assert "memory" in error
    assert re.search(r"\d GiB|\d{9} bytes", error)
    assert said in error
    assert list(folder.iterdir()) == []


def test_an_env_that_cannot_be_had_is_refused(folder: Path, capsys: Capture) -> None:
    assert train_status(*GREEDY, "env.kwargs.born=true") == 2
    error = capsys.readouterr().err
    assert error.startswith("border-train: the run does not fit in memory: Unable to allocate 71")
    assert list(folder.iterdir()) == []


def assert_out_of_memory(folder: Path, capsys: Capture) -> None:
    said = capsys.readouterr().out
    assert "error: out of memory during training: " in said
    assert "Settings that use memory: replay_buffer.capacity=100000, agent.batch_size=4" in said
    assert "Traceback" not in said
    facts = facts_of(folder / "run")
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith("out of memory during training: ")
    assert "Traceback" in facts["traceback"]


@pytest.mark.parametrize(
    ("typed", "doing"),
    sampled(
        [
            (("env.kwargs.at=30",), "in actor"),
            (("env.kwargs.at=30", "actor_manager=process"), "in actor"),
            (("env.kwargs.at=30", "actor_manager=serial"), "in actor"),
            (("trainer.eval_interval=20", "+evaluator.env.kwargs.at=5"), "during training"),
            (
                (
                    "trainer.eval_interval=20",
                    "+evaluator.env.kwargs.at=5",
                    "evaluator.background=true",
                ),
                "during training",
            ),
        ],
        every=5,
    ),
)
def test_an_env_that_finds_no_memory_ends_the_run_with_a_message(
    folder: Path, capsys: Capture, typed: tuple[str, ...], doing: str
) -> None:
    more = ("trainer.max_opt_steps=100", "actor_manager.max_restarts=0")
    assert train_status(*GREEDY, *more, *typed) == 1
    said = capsys.readouterr().out
    assert f"error: out of memory {doing}" in said
    assert "Unable to allocate 71.1 PiB" in said
    assert "Settings that use memory: " in said
    assert facts_of(folder / "run")["exit_reason"].startswith(f"out of memory {doing}")


@pytest.mark.usefixtures("hungry_agent")
def test_a_learner_that_finds_no_memory_ends_the_run_with_a_message(
    folder: Path, capsys: Capture
) -> None:
    argv = ("-cd", "conf", "imports=[hungry_agent]", "agent=hungry", "env.id=CartPole-v1", *QUICK)
    more = ("run_dir=run", "trainer.max_opt_steps=100", "trainer.save_interval=20")
    assert train_status(*argv, *more, "trainer.eval_interval=0") == 1
    assert_out_of_memory(folder, capsys)
    assert steps_saved(folder / "run") == [20]
