"""Does the same twelve tasks of daily work with several tools, and reports what happened.

    python -m benchmarks.comparison                     every tool and task without a result
    python -m benchmarks.comparison --peer sb3          one tool; can be repeated
    python -m benchmarks.comparison --peer sb3 --again typo   one task once more
    python -m benchmarks.comparison --report            writes docs/inside/comparison.md

Takes about an hour. Each tool is installed from the package index into a virtual environment of its
own; ours from this repository. A task is a script in benchmarks/comparison/scripts, which prints
its commands and their decisive lines. Its first comments say the answer for the table, and patterns
of the output that prove it. Results are stored in benchmarks/results/comparison after each task. A
task is run again if its script has changed since.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.comparison.peers import PEERS, TASKS, Peer, Task
from benchmarks.comparison.report import is_as_expected, write_report
from benchmarks.comparison.trial import (
    Trial,
    body_of,
    read_result,
    script_path,
    write_result,
)
from benchmarks.table import say


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.report:
        write_report()
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = (arguments.keep or Path(name)).resolve()
        for peer in arguments.peer or PEERS:
            try_peer(PEERS[peer], folder, set(arguments.again))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--peer", action="append", choices=[*PEERS], help="a tool (default: all)")
    names = [task.name for task in TASKS]
    parser.add_argument("--again", action="append", default=[], choices=names, help="a task")
    parser.add_argument("--keep", type=Path, help="folder for what is installed and written")
    parser.add_argument("--report", action="store_true", help="write the page")
    return parser


def try_peer(peer: Peer, folder: Path, again: set[str]) -> None:
    """Does the tasks of a tool that have no result yet, and stores each result."""
    result = read_result(peer)
    tasks = [task for task in TASKS if task.name in again or not is_done(peer, task)]
    if not tasks or result.get("install_status"):
        return
    trial = Trial(peer, folder)
    say(f"{peer.name}: installing")
    result = {**trial.install(), "tasks": result.get("tasks", {})}
    write_result(peer, result)
    if result["install_status"]:
        say(f"{peer.name}: {result['install_error']}")
        return
    for task in tasks:
        if not script_path(peer, task).exists():
            sys.exit(f"{script_path(peer, task)} does not exist")
        result["tasks"][task.name] = trial.run(task)
        write_result(peer, result)
        outcome = result["tasks"][task.name]
        say(f"{peer.name} {task.name}: {outcome['wall_s']} s, {_verdict(peer, task, outcome)}")


def is_done(peer: Peer, task: Task) -> bool:
    """Returns whether the script of the task has run as it is now."""
    path = script_path(peer, task)
    outcome = read_result(peer).get("tasks", {}).get(task.name, {})
    return path.exists() and outcome.get("script") == body_of(path.read_text(encoding="utf-8"))


def _verdict(peer: Peer, task: Task, outcome: dict[str, object]) -> str:
    return "as expected" if is_as_expected(peer, task, outcome) else "not as expected"


if __name__ == "__main__":
    main()
