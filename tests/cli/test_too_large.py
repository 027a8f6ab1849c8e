"""Runs that do not fit in memory: refused before allocation, or ended with a message."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from border_cli.run.finding import steps_saved
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, facts_of, train_status

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
    refusal: Callable[..., str], typed: tuple[str, ...], said: str
) -> None:
    error = refusal(*typed, "run_dir=run", "device=cpu")
    assert re.search(r"memory.*\d GiB|\d{9} bytes", error)
    assert said in error


def test_an_env_that_does_not_fit_in_memory_is_refused(refusal: Callable[..., str]) -> None:
    said = refusal(*GREEDY, "env.kwargs.born=true")
    assert "the run does not fit in memory: Unable to allocate 71" in said


@pytest.mark.parametrize(
    ("typed", "doing"),
    sampled(
        [
            (("env.kwargs.at=30",), "in actor"),
            (("env.kwargs.at=30", "actor_manager=process"), "in actor"),
            (("env.kwargs.at=30", "actor_manager=serial"), "in actor"),
            (("trainer.eval_interval=20", "+evaluator.env.kwargs.at=5"), "during training"),
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


@pytest.mark.usefixtures("own_modules")
def test_a_learner_that_finds_no_memory_ends_the_run_with_a_message(
    folder: Path, capsys: Capture, write: Callable[[str, str], Path]
) -> None:
    write("hungry_agent.py", HUNGRY_AGENT)
    write("conf/agent/hungry.yaml", "defaults: [/schema/agent/hungry@_here_, _self_]\n")
    argv = ("-cd", "conf", "imports=[hungry_agent]", "agent=hungry", "env.id=CartPole-v1", *QUICK)
    more = ("run_dir=run", "trainer.max_opt_steps=100", "trainer.save_interval=20")
    assert train_status(*argv, *more, "trainer.eval_interval=0") == 1
    said = capsys.readouterr().out
    assert "error: out of memory during training: " in said
    assert "Settings that use memory: replay_buffer.capacity=100000, agent.batch_size=4" in said
    assert "Traceback" not in said
    assert "Traceback" in facts_of(folder / "run")["traceback"]
    assert steps_saved(folder / "run") == [20]
