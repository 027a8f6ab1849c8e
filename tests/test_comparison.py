"""The comparison with other tools: its results, and the page that is written from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.comparison.peers import PEERS, RESULTS, SCRIPTS, TASKS, Peer, Task
from benchmarks.comparison.report import PAGE, PICTURE, is_as_expected, page, picture, read_notes
from benchmarks.comparison.trial import body_of, read_curves, read_result, script_path

STORED = {peer.name: result for peer in PEERS.values() if (result := read_result(peer))}
DONE = [
    (PEERS[name], task)
    for name, result in STORED.items()
    for task in TASKS
    if task.name in result.get("tasks", {})
]
MACHINE = re.compile(r"/(?:home|root|tmp|opt|work|Users)/")


def outcome_of(peer: Peer, task: Task) -> dict[str, object]:
    outcome: dict[str, object] = STORED[peer.name]["tasks"][task.name]
    return outcome


def test_the_page_and_its_picture_are_written_from_the_results() -> None:
    hint = "run: python -m benchmarks.comparison --report"
    assert PAGE.read_text(encoding="utf-8") == page(STORED), hint
    assert PICTURE.read_text(encoding="utf-8") == picture(STORED), hint


def test_the_page_is_short_enough_to_read() -> None:
    assert len(PAGE.read_bytes()) < 40_000


@pytest.mark.parametrize("peer", STORED.values(), ids=lambda result: str(result["peer"]))
def test_an_installed_tool_did_all_tasks_and_another_has_its_reason(
    peer: dict[str, object],
) -> None:
    if peer["install_status"]:
        assert str(peer["install_error"]).startswith("ERROR")
    else:
        tasks = peer["tasks"]
        assert isinstance(tasks, dict)
        assert {*tasks} == {task.name for task in TASKS}


@pytest.mark.parametrize(("peer", "task"), DONE, ids=lambda part: str(part.name))
def test_a_cell_has_its_command_and_the_output_that_proves_it(peer: Peer, task: Task) -> None:
    outcome = outcome_of(peer, task)
    lines = outcome["output"]
    assert isinstance(lines, list)
    assert [line for line in lines if line.startswith("$ ")]
    assert [line for line in lines if not line.startswith("$ ")]
    assert is_as_expected(peer, task, outcome)
    assert len(read_notes(peer, task).answer) <= 50
    assert outcome["script"] == body_of(script_path(peer, task).read_text(encoding="utf-8"))


def test_no_file_names_a_folder_of_the_machine() -> None:
    files = [
        PAGE,
        *RESULTS.glob("*.json"),
        *(path for path in SCRIPTS.rglob("*") if path.is_file()),
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files if path.suffix != ".pyc"}
    assert {
        name: MACHINE.findall(text) for name, text in texts.items() if MACHINE.search(text)
    } == {}


def test_curves_are_means_over_equal_parts_of_the_steps(tmp_path: Path) -> None:
    rows = tmp_path / "curve.csv"
    rows.write_text("A,undivided,1,10\nA,undivided,2,30\nA,resumed,100,5\nB,resumed,50,7\n")
    assert read_curves(rows) == {
        "A|undivided": [[2, 20.0]],
        "A|resumed": [[98, 5.0]],
        "B|resumed": [[49, 7.0]],
    }
