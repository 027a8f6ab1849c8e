"""One job is run without Hydra's entry point; that must not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from sampling import sampled

from border_cli.cli.train import main


def saved(run_dir: Path, name: str) -> dict[str, Any]:
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
    settings = [saved(each, "config.yaml") for each in (alone, swept)]
    assert [each.pop("run_dir") for each in settings] == ["alone", "swept"]
    assert settings[0] == settings[1]


@pytest.mark.parametrize(
    ("flags", "shown"),
    sampled(
        [
            (("--info", "defaults"), "tuned/redq"),
            (("--cfg", "job", "-p", "trainer"), "samples_per_opt_step: 0.05"),
            (("--cfg", "job", "-p", "trainer"), "max_opt_steps: null"),
        ],
        every=5,
    ),
)
def test_hydra_shows_the_values_of_an_agent(
    flags: tuple[str, ...], shown: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder
    main(["agent=redq", "env=pendulum", *flags])
    said = capsys.readouterr().out
    assert shown in said
    main(["agent=redq", "env=pendulum", *flags, "~tuned"])
    assert shown not in capsys.readouterr().out
