"""Optional parts are not loaded by a plain run, and users can register an engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from border_cli import compose, registry, train
from border_cli.errors import ConfigError
from tests.support.commands import QUICK, facts_of, isolated, train_status

ROOMS = ("analysis", "dataset.minari_files", "evaluator.film", "ray", "sweep")
LOADED = (
    "import atexit, json, sys\n"
    "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
    "from border_cli.cli.train import main\n"
    "main(sys.argv[1:])\n"
)


def test_a_plain_run_loads_no_room_of_the_edge(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOADED, "agent=dqn", "env=cartpole", *QUICK, "run_dir=run"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    modules = json.loads(process.stderr.splitlines()[-1])
    assert "border_cli.trainer.trainer" in modules
    loaded = [
        module
        for module in modules
        if any(f"{module}.".startswith(f"border_cli.{room}.") for room in ROOMS)
    ]
    assert loaded == ["border_cli.ray", "border_cli.ray.config"]  # settings only, without Ray
    assert not {"ray", "minari", "matplotlib", "PIL"} & set(modules)


@pytest.fixture
def pool_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the registries after the test, which registers the engine by `imports`."""
    registry.register_builtin()  # does nothing after the first call in a process
    for name in ("ACTOR_MANAGERS", "EVALUATION_RUNNERS", "JOB_LAUNCHERS"):
        registered = getattr(registry, name)
        attribute = "_entries" if name == "ACTOR_MANAGERS" else "_targets"
        monkeypatch.setattr(registered, attribute, dict(getattr(registered, attribute)))
    yield
    sys.modules.pop("pool_engine", None)


@pytest.mark.usefixtures("pool_engine")
def test_an_engine_of_a_user_runs_actors_evaluations_and_jobs(tmp_path: Path) -> None:
    option = tmp_path / "conf" / "actor_manager" / "pool.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("defaults: [/schema/actor_manager/pool@_here_, _self_]\n")
    typed = (
        *("-cd", "conf", *QUICK, "env=cartpole", "imports=[pool_engine]"),
        *("actor_manager=pool", "evaluator.where=pool", "evaluator.background=true"),
    )
    with isolated(tmp_path):
        assert train_status(*typed, "run_dir=R") == 0
        engine = sys.modules["pool_engine"]
        assert engine.USED == ["actors", "evaluations"]
        assert engine.PoolConfig.asked > 0
        assert train_status(*typed, "trainer=sync", "run_dir=T") == 2  # has no `lockstep`
        config = compose(*typed[2:], config_dir="conf")
        config = replace(config, trainer=compose("trainer=sync").trainer)
        with pytest.raises(ConfigError, match="actor_manager=pool does not work with trainer=sync"):
            train(config)
        jobs = ("-m", "seed=1,2", "run_dir=S", "hydra/launcher=pool", "hydra.launcher.jobs=1")
        assert train_status(*typed, *jobs) == 0
    assert engine.USED[2:] == ["jobs below S"]
    for folder in ("R", "S/seed-1", "S/seed-2"):
        facts = facts_of(tmp_path / folder)
        assert facts["status"] == "done"
        assert facts["best_score"] is not None
