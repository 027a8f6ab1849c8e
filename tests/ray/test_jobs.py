"""Invalid settings of `hydra/launcher=ray`: refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.case_sampling import sampled
from tests.support.commands import train_status

SWEEP = ("-m", "env=cartpole", "seed=0,1", "hydra/launcher=ray")


@pytest.mark.parametrize(
    ("typed", "said"),
    sampled(
        [
            ("hydra.launcher.jobs=0", "hydra.launcher.jobs must be null or at least 1, got 0"),
            ("hydra.launcher.adress=auto", "did you mean hydra.launcher.address?"),
        ],
        every=3,
    ),
)
def test_settings_of_the_launcher_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert train_status(*SWEEP, typed) == 2
    assert said in capsys.readouterr().err
    assert not list(folder.iterdir())
