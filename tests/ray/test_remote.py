"""Why a Ray actor died, in one line extracted from Ray's messages."""

from __future__ import annotations

import pytest

from border_cli.ray.remote import describe_error

# Messages of Ray 2.60.
NODE = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: JobHost\n"
    "\tactor_id: 3f0c0c5ad42f8ee3\nThe actor is dead because its node has died. Node Id: 77aa9d"
)
PROCESS = (
    "The actor died unexpectedly before finishing this task.\n\tpid: 12\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
    "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
)
MEMORY = "Task was killed due to the node running low on memory.\nMemory on the node was 15.3GB."


class Raised(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(NODE), "its node has died"),
        (RuntimeError(PROCESS), "its worker process has died"),
        (
            RuntimeError(MEMORY),
            "Task was killed due to the node running low on memory. Memory on the node was 15.3GB.",
        ),
        (Raised(FileNotFoundError("node a does not see /S")), "FileNotFoundError: node a does not"),
    ],
)
def test_the_reason_is_one_line_without_ids(error: Exception, said: str) -> None:
    assert describe_error(error).startswith(said)
    assert "\n" not in describe_error(error)
    assert "Id:" not in describe_error(error)
