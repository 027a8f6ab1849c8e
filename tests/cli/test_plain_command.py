"""Arguments of the form `RUN_DIR key=value …`, with directory names that look like settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.cli.plain_command import integer_reader, read_pairs, read_text
from border_cli.errors import ConfigError

READERS = {"episodes": integer_reader(1), "lr": read_text}


@pytest.mark.parametrize("folder", ["run", "my_sweep/lr=0.1", "lr=0.1"])
def test_the_folder_of_a_job_of_a_sweep_is_no_setting(folder: str, tmp_path: Path) -> None:
    run_dir = tmp_path / folder
    run_dir.mkdir(parents=True)
    assert read_pairs(["episodes=3", str(run_dir)], READERS) == ([run_dir], {"episodes": 3})


def test_a_value_may_have_slashes() -> None:
    with pytest.raises(ConfigError, match="give one run directory, got 0"):
        read_pairs(["lr=a/b"], READERS)
