"""A single job bypasses Hydra's entry point and saves the same config.yaml as one of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]


def load_saved(run_dir: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((run_dir / ".hydra" / name).read_text())
    return content


def test_one_job_saves_the_same_as_the_first_of_a_sweep(
    folder: Path, ran: Callable[..., Any]
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "own.yaml").write_text("defaults: [config, _self_]\nseed: 7\n")
    command = ("-cd", "mine", "-cn", "own", "env=cartpole", "agent.gamma=0.5")
    alone = ran(*command, "run_dir=alone").jobs[0].folder
    swept = ran(*command, "-m", "seed=7,8", "run_dir=swept", "hydra/launcher=basic").jobs[0].folder
    assert (alone, swept.parent) == (folder / "alone", folder / "swept")
    settings = [load_saved(run_dir, "config.yaml") for run_dir in (alone, swept)]
    assert [config.pop("run_dir") for config in settings] == ["alone", "swept"]
    assert settings[0] == settings[1]
