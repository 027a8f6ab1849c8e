"""What does not fit in memory: refused before it is allocated, or a message where it fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, Command, eval_status, facts_of, train_status
from sampling import sampled

from border_cli.registry import AGENTS, register_builtin
from border_cli.run.finding import steps_saved

Capture = pytest.CaptureFixture[str]

LIMITED = "resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30,) * 2)"
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
    where: str = "update"


class Hungry(Dqn):
    def update(self, batch):
        self.eats("update")
        return super().update(batch)

    def state_dict(self):
        self.eats("save")
        return super().state_dict()

    def eats(self, where):
        if where == self.config.where and self.opt_steps == 20:
            torch.empty(10**16)


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
            (("env=cartpole", "agent=iqn", "agent.hidden=[100000,100000]"), THOUSANDS),
            (("env=pendulum", "agent=sac", "agent.hidden=[100000,100000]"), THOUSANDS),
            (
                ("env=pendulum", "agent=sac", "agent.num_critics=100000000"),
                "agent.num_critics=10000",
            ),
            (("env=cartpole", "agent.num_atoms=1000000000"), "agent.num_atoms=1000000000"),
            ((*VAST, "+env.kwargs.states=1000000000"), "1,000,000,000 numbers per observation"),
            ((*VAST, "+env.kwargs.actions=100000000"), "actions Discrete(100000000)"),
            (
                (*VAST, "+env.kwargs.parts=4", "+env.kwargs.states=1000000000"),
                "4,000,000,000 numbers",
            ),
        ],
        every=5,
    ),
)
def test_an_agent_that_does_not_fit_is_refused_with_numbers_and_settings(
    folder: Path, capsys: Capture, typed: tuple[str, ...], said: str
) -> None:
    assert train_status(*typed, "run_dir=run", "device=cpu") == 2
    error = capsys.readouterr().err
    assert error.startswith("border-train: the agent does not fit in memory (env.id=")
    assert "GiB are needed and " in error
    assert "GiB are available (" in error
    assert said in error
    assert "agent.hidden=" in error
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        "agent.batch_size=1000000000",
        "actor_manager.num_actors=10000 env.num_envs=100000",
        "evaluator.num_episodes=100000000",
        "actor_manager.n_buffer=10000000000",
    ],
)
def test_what_comes_many_times_is_refused_with_its_setting(
    folder: Path, capsys: Capture, typed: str
) -> None:
    assert train_status("env=cartpole", *typed.split(), "run_dir=run") == 2
    error = capsys.readouterr().err
    assert error.startswith("border-train: the run needs ")
    assert typed.replace(" ", ", ") in error
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit")
def test_what_fits_once_but_not_with_its_copies_is_refused(tmp_path: Path) -> None:
    argv = ("env=cartpole", "agent.hidden=[16000,16000]", "run_dir=run", "device=cpu")
    with Command(tmp_path, *argv, before=LIMITED) as run:
        status, said = run.ended()
    assert status == 2, said
    assert "(address space, ulimit -v)" in said
    assert "agent.hidden=[16000, 16000]" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_an_env_that_cannot_be_had_is_refused(folder: Path, capsys: Capture) -> None:
    assert train_status(*GREEDY, "env.kwargs.born=true") == 2
    error = capsys.readouterr().err
    assert error.startswith("border-train: the run does not fit in memory: Unable to allocate 71")
    assert list(folder.iterdir()) == []


def assert_out_of_memory(folder: Path, capsys: Capture, doing: str) -> None:
    said = capsys.readouterr().out
    assert f"error: out of memory {doing}: " in said
    assert "Settings that use memory: replay_buffer.capacity=100000, agent.batch_size=4" in said
    assert "Traceback" not in said
    facts = facts_of(folder / "run")
    assert facts["status"] == "failed"
    assert facts["exit_reason"].startswith(f"OutOfMemory: out of memory {doing}: ")
    assert "Traceback" in facts["traceback"]


@pytest.mark.parametrize(
    ("typed", "doing"),
    sampled(
        [
            (("env.kwargs.at=30",), "in actor "),
            (("env.kwargs.at=30", "actor_manager=process"), "in actor "),
            (("env.kwargs.at=30", "actor_manager=serial"), "in actor "),
            (("trainer.eval_interval=20", "+evaluator.env.kwargs.at=5"), "during an evaluation"),
            (
                (
                    "trainer.eval_interval=20",
                    "+evaluator.env.kwargs.at=5",
                    "evaluator.background=true",
                ),
                "during an evaluation",
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
    text = doing if doing.endswith("evaluation") else doing.strip()
    said = capsys.readouterr().out
    assert f"error: out of memory {text}" in said
    assert "Unable to allocate 71.1 PiB" in said
    assert "Settings that use memory: " in said
    assert facts_of(folder / "run")["exit_reason"].startswith(f"OutOfMemory: out of memory {text}")


@pytest.mark.usefixtures("hungry_agent")
@pytest.mark.parametrize(
    ("where", "doing", "saved"),
    [("update", "during an update", [20]), ("save", "while a checkpoint was saved", [])],
)
def test_a_learner_that_finds_no_memory_ends_the_run_with_a_message(
    folder: Path, capsys: Capture, where: str, doing: str, saved: list[int]
) -> None:
    argv = ("-cd", "conf", "imports=[hungry_agent]", "agent=hungry", "env.id=CartPole-v1", *QUICK)
    more = ("run_dir=run", "trainer.max_opt_steps=100", "trainer.save_interval=20")
    assert train_status(*argv, *more, f"agent.where={where}", "trainer.eval_interval=0") == 1
    assert_out_of_memory(folder, capsys, doing)
    assert steps_saved(folder / "run") == saved


class Unreadable(str):
    """An argument for which there is no room: a real limit fails here and there."""

    def __getitem__(self, _: Any) -> str:
        raise MemoryError("no room for a letter")


def test_a_process_that_cannot_even_begin_says_so(folder: Path, capsys: Capture) -> None:
    assert train_status("env=cartpole", Unreadable("seed=1")) == 2
    error = capsys.readouterr().err
    assert error == "border-train: not enough memory to start: no room for a letter\n"
    assert list(folder.iterdir()) == []


def test_a_saved_model_that_does_not_fit_and_too_many_episodes_are_refused(
    folder: Path, capsys: Capture
) -> None:
    assert train_status("env=cartpole", *QUICK, "run_dir=run", "quiet=true") == 0
    assert eval_status("run", "episodes=100000000") == 2
    error = capsys.readouterr().err
    assert error.startswith("border-eval: the evaluation needs ")
    assert "evaluator.num_episodes=100000000" in error
    saved = folder / "run" / ".hydra" / "resolved.yaml"
    text = saved.read_text()
    assert "  hidden:\n  - 4\n" in text
    saved.write_text(text.replace("  hidden:\n  - 4\n", "  hidden:\n  - 100000\n  - 100000\n"))
    assert eval_status("run") == 2
    assert "border-eval: the agent does not fit in memory" in capsys.readouterr().err
