"""Facts on which a result depends."""

from __future__ import annotations

from pathlib import Path

from border_cli.run.provenance import git_state


def test_a_folder_that_cannot_be_searched_has_no_repository() -> None:
    assert git_state(Path("/", 300 * "x")) is None  # as a folder without permission, for `stat`
