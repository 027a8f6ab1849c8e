"""Runs of small networks on a CPU never import torch; `agent.backend` may change on resume."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from border_cli.core.state import load_state
from tests.support.commands import QUICK, facts_of, isolated, train_status

Capture = pytest.CaptureFixture[str]

# A `torch` whose import fails and leaves its stack, in case that a caller goes on without it.
FAKE_TORCH = """
import os, traceback
with open(os.environ["IMPORTS"], "a") as file:
    print(*traceback.format_stack(), sep="", file=file)
raise ImportError("torch was imported")
"""
COMMANDS = """
import importlib, json, sys

def run_all():
    for name, *argv in json.loads(sys.argv[1]):
        try:
            importlib.import_module(f"border_cli.cli.{name}").main(argv)
        except SystemExit as end:
            assert not end.code, (name, argv)
    import border_cli
    assert border_cli.load_policy("run").act([0.0] * 4) in (0, 1)

if __name__ == "__main__":  # actors in processes import this file, too
    run_all()
"""
SETTINGS = ("env=cartpole", "agent.hidden=[4]", "evaluator.num_episodes=1", "run_dir=run")
# With a driver of a GPU only torch knows whether there is one, so `device=auto` imports it.
DEVICE = ("device=cpu",) if find_library("cuda") else ()
DQN = (
    *("agent=dqn", "actor_manager=process", "actor_manager.num_actors=1"),
    *("trainer.warmup_period=8", "trainer.max_opt_steps=20", "trainer.eval_interval=10"),
    *("agent.batch_size=4", "actor_manager.n_buffer=4"),
)
PPO = (
    *("agent=ppo", "trainer.max_env_steps=64", "replay_buffer.n_steps=32"),
    *("agent.batch_size=16", "actor_manager=process", "actor_manager.num_actors=1"),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "further"),
    [(DQN, "trainer.max_opt_steps=30"), (PPO, "trainer.max_env_steps=128")],
    ids=["dqn", "ppo"],
)
def test_neither_a_run_nor_its_actors_nor_the_commands_after_it_import_torch(
    tmp_path: Path, settings: tuple[str, ...], further: str
) -> None:
    fake, imports = tmp_path / "fake" / "torch.py", tmp_path / "imports"
    fake.parent.mkdir()
    fake.write_text(FAKE_TORCH)
    commands = [
        ("train", *settings, *SETTINGS, *DEVICE),
        ("train", "resume=run", further),
        ("eval", "run", "episodes=1"),
        ("runs", "run"),
    ]
    (tmp_path / "commands.py").write_text(COMMANDS)
    path = [str(fake.parent), *(entry for entry in sys.path if Path(entry).is_absolute())]
    done = subprocess.run(
        [sys.executable, "commands.py", json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "IMPORTS": str(imports)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not imports.exists(), imports.read_text()
    assert done.returncode == 0, done.stderr
    assert facts_of(tmp_path / "run")["backend"].startswith("numpy (agent.backend=auto: ")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    with isolated(tmp_path):
        yield tmp_path


def saved_state(run_dir: str) -> dict[str, Any]:
    state: dict[str, Any] = load_state(Path(run_dir, "checkpoints", "latest", "agent.npz"))
    return state


STARTS = {
    "dqn": ("agent=dqn", "trainer=sync", *QUICK, "trainer.max_opt_steps=20"),
    "ppo": PPO,
}


@pytest.mark.parametrize(
    ("agent", "first", "second", "further"),
    [
        ("dqn", "numpy", "torch", "trainer.max_opt_steps=24"),
        ("ppo", "torch", "numpy", "trainer.max_env_steps=128"),
    ],
)
def test_another_backend_continues_a_run_and_says_so(
    here: Path, capfd: Capture, agent: str, first: str, second: str, further: str
) -> None:
    start = (*STARTS[agent], *SETTINGS, "device=cpu", f"agent.backend={first}")
    assert train_status(*start) == 0
    assert saved_state("run")["backend"] == first
    assert "continues with" not in capfd.readouterr().out
    assert train_status("resume=run", further, f"agent.backend={second}") == 0
    assert saved_state("run")["backend"] == second
    said = capfd.readouterr().out
    assert f"computed by agent.backend={first} and continues with {second}" in said
    assert facts_of(here / "run")["backend"].startswith(f"{second} (agent.backend={second}")


@pytest.mark.usefixtures("here")
def test_the_settings_of_a_run_keep_auto_and_its_checkpoints_name_what_ran() -> None:
    assert train_status(*STARTS["dqn"], *SETTINGS, "device=cpu") == 0
    assert "backend: auto\n" in Path("run/.hydra/resolved.yaml").read_text()
    assert saved_state("run")["backend"] == "numpy"
    assert saved_state("run")["noise"] is None
