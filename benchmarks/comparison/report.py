"""Writes the page of the comparison and its picture from the stored results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.comparison.peers import PEERS, ROOT, SCRIPTS, TASKS, TORCH, Peer, Task
from benchmarks.comparison.picture import draw
from benchmarks.comparison.trial import Result, read_result, script_path
from benchmarks.markdown import table

PAGE = ROOT / "docs" / "inside" / "comparison.md"
PICTURE = PAGE.with_name("comparison_resume.svg")
FACTS = {
    "buffer": "replay buffer",
    "optimiser": "optimiser",
    "schedule": "schedule",
    "counters": "counters",
    "same result": "same result as undivided",
}
UNEXPECTED = "not as expected"
SOURCE = "../../benchmarks/comparison/scripts"

INTRODUCTION = """\
# Comparison with other tools

The same twelve tasks of daily work with several tools, each as its documentation recommends.
`python -m benchmarks.comparison` installs each tool from the package index into a virtual
environment of its own (ours from this repository), runs a script per task, and stores what
happened in `benchmarks/results/comparison/`. `--report` writes this page. Budgets are tiny: the
page is about commands and what they leave, not about scores or speed. A cell says what the output
in its section shows. "Not part of it": the installed package has no such command; the output then
has the search for it, and the remark says what its documentation offers instead.
"""
RESUMED = """\
A run is killed by `kill -9` in the middle and continued from its last checkpoint. The curves are
returns of training episodes from each tool's own log. The dotted line is near the checkpoint.
Settings differ between tools: compare a panel only with itself. Sample Factory has only an
on-policy algorithm; the others run DQN on CartPole-v1.

![Curves of undivided and of resumed runs](comparison_resume.svg)
"""


class Notes(NamedTuple):
    """The first comments of a script."""

    answer: str
    evidence: tuple[str, ...]  # regular expressions that the output contains
    remark: str


def read_notes(peer: Peer, task: Task) -> Notes:
    text = script_path(peer, task).read_text(encoding="utf-8")
    comments = re.findall(r"^# (answer|evidence|remark): (.*)$", text, re.MULTILINE)
    of_kind = {kind: [line for name, line in comments if name == kind] for kind, _ in comments}
    evidence = tuple(of_kind.get("evidence", ()))
    return Notes(of_kind["answer"][0], evidence, " ".join(of_kind.get("remark", ())))


def is_as_expected(peer: Peer, task: Task, outcome: dict[str, Any]) -> bool:
    """Returns whether the output has all evidence for the answer."""
    output = "\n".join(outcome["output"])
    patterns = read_notes(peer, task).evidence
    return all(re.search(pattern, output, re.MULTILINE) for pattern in patterns)


def write_report() -> None:
    """Writes the page and its picture."""
    results = {peer.name: result for peer in PEERS.values() if (result := read_result(peer))}
    PAGE.write_text(page(results), encoding="utf-8")
    PICTURE.write_text(picture(results), encoding="utf-8")


def picture(results: dict[str, Result]) -> str:
    """Returns the curves of all resumed runs as an SVG."""
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for result in results.values():
        for name, points in result.get("tasks", {}).get("resume", {}).get("curves", {}).items():
            panel, _, run = name.partition("|")
            curves.setdefault(panel, {})[run] = points
    return draw(curves)


def page(results: dict[str, Result]) -> str:
    """Returns the text of the page."""
    tried = [PEERS[name] for name, result in results.items() if not result["install_status"]]
    lines = [INTRODUCTION, *_tools(results), *_resumes(tried, results), *_table(tried, results)]
    for peer in tried:
        lines += ["", f"## {peer.title}", "", *_scripts(peer)]
        for task in TASKS:
            if outcome := results[peer.name]["tasks"].get(task.name):
                lines += _section(peer, task, outcome)
    return "\n".join(lines).rstrip() + "\n"


def _tools(results: dict[str, Result]) -> Iterator[str]:
    rows = []
    for name, result in results.items():
        versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items())
        if result["install_status"]:
            versions = f"not installed: `{_reason(result)}`"
        installed = f"`{' '.join(result['requirements'])}`"
        where_and_when = [result[key] for key in ("python", "processor", "date")]
        rows.append((PEERS[name].title, installed, versions, *where_and_when))
    yield table(("tool", "`pip install`", "versions", "Python", "processor", "date"), rows)
    yield ""
    yield "Seconds are not comparable: processors differ, and other programs ran on them. Every"
    yield f"installation is constrained to `{TORCH}`."
    failed = [PEERS[name].title for name, result in results.items() if result["install_status"]]
    if failed:
        yield ""
        yield f"{', '.join(failed)} could not be installed there, which is not held against it."


def _reason(result: Result) -> str:
    """Returns the last line of pip, after what it says about the Python of the release."""
    *before, last = result["install_error"].split("; ")
    release = result["requirements"][0].partition("==")[2]
    return "; ".join([*(part for part in before if part.startswith(f"{release} Requires")), last])


def _resumes(tried: list[Peer], results: dict[str, Result]) -> Iterator[str]:
    yield from ("", "## Killed and resumed", "")
    yield RESUMED
    rows = []
    for peer in tried:
        outcome = results[peer.name]["tasks"].get("resume", {"output": []})
        facts = dict(re.findall(r"^fact ([\w ]+): (.*)$", "\n".join(outcome["output"]), re.M))
        link = f"[{peer.title}](#{_anchor(peer, TASKS[0])})"
        rows.append([link, *(facts.get(name, "–") for name in FACTS)])
    yield table(["tool", *FACTS.values()], rows)


def _table(tried: list[Peer], results: dict[str, Result]) -> Iterator[str]:
    yield from ("", "## Twelve tasks", "")
    rows = []
    for task in TASKS:
        cells = [_cell(peer, task, results[peer.name]["tasks"].get(task.name)) for peer in tried]
        rows.append([f"**{task.title}**: {task.question}", *cells])
    yield table(["task", *(peer.title for peer in tried)], rows)


def _cell(peer: Peer, task: Task, outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "–"
    answer = read_notes(peer, task).answer
    shown = answer if is_as_expected(peer, task, outcome) else UNEXPECTED
    return f"[{shown}](#{_anchor(peer, task)})"


def _heading(peer: Peer, task: Task) -> str:
    return f"{peer.name} {task.name}"


def _anchor(peer: Peer, task: Task) -> str:
    return _heading(peer, task).replace(" ", "-")


def _scripts(peer: Peer) -> Iterator[str]:
    folder = f"[{peer.name}]({SOURCE}/{peer.name})"
    yield f"Scripts: {folder}. {_shortened(SCRIPTS / peer.name)}".rstrip()
    yield ""


def _shortened(folder: Path) -> str:
    """Returns what `$small` stands for in all scripts of a tool, if they share it."""
    common = folder / "common.sh"
    return _small(common.read_text(encoding="utf-8")) if common.exists() else ""


def _small(script: str) -> str:
    match = re.search(r'^small="(.*)"$', script, re.MULTILINE)
    return f"`$small` is `{match[1]}`." if match else ""


def _section(peer: Peer, task: Task, outcome: dict[str, Any]) -> Iterator[str]:
    status = "time limit" if outcome["status"] is None else f"exit status {outcome['status']}"
    first = f"`{task.name}.sh`, {status}, {outcome['wall_s']:.0f} s."
    yield f"### {_heading(peer, task)}"
    yield ""
    yield " ".join(filter(None, (first, read_notes(peer, task).remark, _small(outcome["script"]))))
    yield from ("", "```text", *outcome["output"], "```", "")
