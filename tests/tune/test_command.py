"""Runs that a study begins or continues."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from border_cli.config.compose import Composer
from border_cli.config.job import resolved_yaml, write_resolved
from border_cli.errors import ConfigError
from border_cli.system.files import write_json
from border_cli.tune.command import Tuning
from border_cli.tune.runs import Training


def test_a_run_whose_settings_have_changed_in_a_file_refuses_the_command(tmp_path: Path) -> None:
    """Its trial does not fail, since it can continue once the file is as it was."""
    job = Composer().job(["agent=dqn", "env=cartpole", "trainer.max_env_steps=200"], 0)
    job = replace(job, folder=tmp_path, config=replace(job.config, resume="auto", run_dir="S"))
    write_resolved(tmp_path, resolved_yaml(replace(job.config, seed=5)))
    write_json(tmp_path / "run.json", {"status": "done", "exit_reason": "max_env_steps reached"})
    unused: Any = nullcontext()
    training = Training(unused, 1, [], {0: tmp_path}, unused)
    runs = SimpleNamespace(jobs=lambda _: {tmp_path: job}, is_done=lambda *_: False)
    trials: Any = SimpleNamespace(take=lambda: training, runs=runs)
    with pytest.raises(ConfigError, match="seed: 5 -> 0"):
        Tuning(trials, unused, 1)._take_trial()
