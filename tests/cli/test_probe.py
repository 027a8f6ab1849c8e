"""Environments are probed before a run directory is created; each fault gives one message."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import unruly
import untried
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from border_cli import compose, train
from border_cli.core.seeding import Branch, derived_seed
from tests.support.case_sampling import sampled
from tests.support.commands import (
    QUICK,
    Command,
    facts_of,
    isolated,
    repeatable_rows,
    train_status,
)

Capture = pytest.CaptureFixture[str]
Refusal = Callable[..., str]

UNTRIED = ("imports=[untried]", *QUICK)


@pytest.fixture(autouse=True)
def nothing_counted_yet() -> None:
    untried.Counted.made = 0
    untried.Counted.seeds.clear()
    untried.Single.ports.clear()


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        (
            "FourValues-v0",
            "step must return observation, reward, terminated, truncated and info, got 4 values, "
            "as before Gym 0.26; Shimmy converts it",
        ),
        ("Misshapen-v0", ", at reset: the observation array([0., 0.], dtype=float32) does not fit"),
        (
            "Seedless-v0",
            "got an unexpected keyword argument 'seed' (Gymnasium's "
            "reset(*, seed, options) returns an observation and a dict)\n",
        ),
        ("Exits-v0", "step raised SystemExit: no such action: int\n"),
        ("Unclosable-v0", "close raised OSError: the server is gone\n"),
    ],
)
def test_an_environment_that_fails_as_it_is_tried_is_refused_before_a_folder_is_made(
    refusal: Refusal, env_id: str, said: str
) -> None:
    error = refusal(*UNTRIED, f"env.id={env_id}", "run_dir=run")
    assert error.startswith(f"border-train: env.id={env_id}")
    assert said in error


def test_only_the_users_own_lines_of_a_traceback_are_shown(refusal: Refusal) -> None:
    first, *lines = refusal(*UNTRIED, "env.id=Breaks-v0", "run_dir=run").splitlines()
    assert first == "border-train: env.id=Breaks-v0: step raised KeyError: 'joint_7'"
    files = [line for line in lines if "File " in line]
    assert [line.rpartition(", in ")[2] for line in files] == ["step", "simulate"]
    assert all("untried.py" in line for line in files)
    assert "THE LINE THAT RAISES" in lines[-1]


class Jolts(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper whose step raises, after that of the environment."""

    def step(self, action: Any) -> Any:
        super().step(action)
        raise ValueError("no such axis")


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("Calm-v0", "step raised ValueError: no such axis (in the wrapper Jolts)\n"),
        ("Breaks-v0", "step raised KeyError: 'joint_7'\n"),
    ],
)
def test_a_wrapper_that_raises_is_named(refusal: Refusal, env_id: str, said: str) -> None:
    wrapped = (f"env.id={env_id}", f"env.wrappers=['{__name__}:Jolts']", "run_dir=run")
    assert said in refusal(*UNTRIED, *wrapped)


def test_a_module_that_fails_as_it_is_imported_is_shown_without_the_import_system(
    refusal: Refusal, write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write(
        "halves.py",
        "import gymnasium\n\n\ndef load():\n    raise KeyError('other half')\n\n\nload()\n",
    )
    first, *lines = refusal(*QUICK, "env.id=halves:Half-v0", "run_dir=run").splitlines()
    assert "env.id=halves:Half-v0: its constructor raised KeyError: 'other half'" in first
    files = [line for line in lines if "File " in line]
    assert [line.rpartition(", in ")[2] for line in files] == ["<module>", "load"]


def test_a_separate_evaluation_environment_is_probed_as_well(refusal: Refusal) -> None:
    error = refusal(*UNTRIED, "env.id=Calm-v0", "+evaluator.env.id=Breaks-v0", "run_dir=run")
    assert error.startswith("border-train: evaluator.env: env.id=Breaks-v0: step raised KeyError")


def test_a_package_that_only_the_evaluation_environment_needs_is_named(
    folder: Path, capsys: Capture
) -> None:
    (folder / "evaluation_envs.py").write_text("import no_such_package_of_ours")
    typed = (*UNTRIED, "env.id=Calm-v0", "+evaluator.env.id=evaluation_envs:Walk-v0")
    assert train_status(*typed, "run_dir=run") == 2
    assert not (folder / "run").exists()
    error = capsys.readouterr().err
    assert error.startswith("border-train: evaluator.env: env.id=evaluation_envs:Walk-v0 needs a ")
    assert error.endswith(": pip install no_such_package_of_ours\n")


SINGLE = (*UNTRIED, "env.id=Single-v0", "actor_manager=serial", "actor_manager.num_actors=1")


def test_a_simulator_of_which_one_can_run_is_refused_with_the_settings_of_evaluations(
    refusal: Refusal,
) -> None:
    said = (
        r"env\.id=Single-v0: constructing several at once, .*\(evaluator\.num_episodes, "
        r"evaluator\.env; .*\), raised OSError: Address already in use"
    )
    assert re.search(said, refusal(*SINGLE, "run_dir=run"))
    another = "+evaluator.env.kwargs.port=2"
    two = refusal(*SINGLE, another, "evaluator.num_episodes=2", "run_dir=run")
    assert re.search(said, two)
    untried.Single.ports.clear()
    assert train_status(*SINGLE, "trainer.eval_interval=0", "run_dir=without") == 0
    assert train_status(*SINGLE, another, "run_dir=run") == 0


def test_a_vector_implementation_that_the_run_would_use_is_tried_too(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(CartPoleVectorEnv):
        def step(self, action: object) -> Any:  # noqa: ARG002 - Gymnasium's
            raise OSError("only one at a time")

    entry = gymnasium.registry["CartPole-v1"]
    monkeypatch.setattr(entry, "vector_entry_point", Broken)
    argv = (*QUICK, "env=cartpole", "run_dir=run", "env.num_envs=2")
    assert "env.id=CartPole-v1: step raised OSError: only one at a time" in refusal(*argv)
    assert train_status(*argv, "env.vectorization=sync") == 0


def test_the_results_of_a_run_do_not_depend_on_the_probe(folder: Path) -> None:
    argv = (*UNTRIED, "actor_manager=serial", "actor_manager.num_actors=1", "env.id=Counted-v0")
    assert train_status(*argv, "run_dir=tried") == 0
    seeds = list(untried.Counted.seeds)
    untried.Counted.seeds.clear()
    assert train_status(*argv, "run_dir=untried", "env.probe=false") == 0
    probe = derived_seed(0, Branch.PROBE, 0)
    assert derived_seed(probe, 0, 0) in seeds
    assert derived_seed(probe, 0, 0) not in untried.Counted.seeds
    assert repeatable_rows(folder / "tried") == repeatable_rows(folder / "untried")


def test_without_the_probe_a_run_finds_out_by_itself(folder: Path, capsys: Capture) -> None:
    argv = (*UNTRIED, "env.id=Breaks-v0", "run_dir=run", "env.probe=false")
    assert train_status(*argv) == 1
    assert "failed the same way before delivering a sample" in capsys.readouterr().out
    assert facts_of(folder / "run")["status"] == "failed"


HANGING = ["its constructor", "close", "render", "reset and close"]


@pytest.mark.parametrize("where", sampled(HANGING, every=3))
def test_an_environment_that_hangs_as_it_is_tried_is_named_with_its_call_and_line(
    refusal: Refusal, where: str
) -> None:
    argv = (*UNTRIED, "env.id=Hangs-v0", f"env.kwargs.where='{where}'", "run_dir=run")
    films = ["evaluator.video_interval=1"] if where == "render" else []
    said = refusal(*argv, *films, "trainer.stall_timeout_s=1")
    call = where.partition(" and ")[0]
    within = "within 1 s (trainer.stall_timeout_s); stuck at:\n"
    assert said.startswith(f"border-train: env.id=Hangs-v0: {call} did not return {within}")
    assert "THE LINE THAT HANGS" in said
    assert "border_cli" not in said.partition("\n")[2]


@pytest.mark.slow
def test_a_command_ends_though_the_call_that_hangs_cannot_be_interrupted(tmp_path: Path) -> None:
    argv = (*UNTRIED, "env.id=Hangs-v0", "env.kwargs={where: reset, deaf: true}", "run_dir=run")
    with Command(tmp_path, *argv, "trainer.stall_timeout_s=1") as run:
        status, said = run.ended()
    assert status == 2, said
    assert said.startswith("env.id=Hangs-v0: reset did not return within 1 s")
    assert "THE LINE THAT HANGS" in said
    assert list(tmp_path.iterdir()) == []


def test_an_id_that_is_registered_here_alone_is_known_to_processes(tmp_path: Path) -> None:
    gymnasium.register("OfThisProcess-v0", unruly.Calm)
    settings = (*QUICK, "env.id=OfThisProcess-v0", "evaluator.background=true")
    try:
        with isolated(tmp_path):
            more = ("actor_manager=process", "actor_manager.num_actors=1")
            result = train(compose(*settings, *more, "actor_manager.max_restarts=0"))
    finally:
        gymnasium.registry.pop("OfThisProcess-v0")
    assert result.trainer_stats.opt_steps == 2


def test_initial_weights_are_checked_though_the_command_may_resume(refusal: Refusal) -> None:
    error = refusal(*QUICK, "env=cartpole", "run_dir=run", "resume=auto", "init_from=nowhere")
    assert error == "border-train: init_from=nowhere: no such directory: nowhere\n"


def test_every_job_of_a_sweep_is_checked_for_the_packages_of_its_recorders(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    error = refusal("-m", *QUICK, "env=cartpole", "recorder=[jsonl],[wandb]")
    assert error.startswith("border-train: recorder=wandb needs a package")
