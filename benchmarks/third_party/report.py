"""Writes docs/inside/environments.md from the results of the trial."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from textwrap import fill

from benchmarks.markdown import table
from benchmarks.third_party.packages import ROOT, Result, read_packages, read_results
from benchmarks.third_party.trial import EPISODES, MAX_STEPS
from benchmarks.third_party.verdict import (
    EQUAL,
    OTHER_LOOPS,
    OUTCOMES,
    REFUSED,
    TRAINS,
    outcome_of,
    reason_of,
)
from border_cli.words import pluralize

PAGE = ROOT / "docs" / "inside" / "environments.md"
TEMPLATE = Path(__file__).with_name("page.md")
HEAD = ("package", "id", "command", "check_env", "trains", "equal scores", "remark")
NOTHING = "–"
MOST_CHARACTERS = 160  # of a remark


def write_report() -> None:
    """Writes the page."""
    PAGE.write_text(page(read_results()), encoding="utf-8")


def page(results: Mapping[str, Result]) -> str:
    """Returns the whole page."""
    every = list(results.values())
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        steps=MAX_STEPS,
        episodes=EPISODES,
        when=_when(every),
        counts=counts_of(every),
        table=table(HEAD, [row_of(result) for result in every]),
    )


def _when(results: Sequence[Result]) -> str:
    """Describes when the packages were tried, and over which versions they were installed."""
    dates = sorted({result["date"] for result in results})
    versions: dict[str, set[str]] = {}
    for result in results:
        for name, version in {"Python": result["python"], **result["base"]}.items():
            versions.setdefault(name, set()).add(version)
    listed = ", ".join(
        f"{name} {' or '.join(sorted(numbers))}" for name, numbers in versions.items()
    )
    limits = " or ".join(
        f"{minutes:g}" for minutes in sorted({result["minutes"] for result in results})
    )
    sentences = (
        f"Tried {' to '.join(dict.fromkeys([*dates[:1], *dates[-1:]]))} on a CPU, with {listed}, "
        f"and at most {limits} minutes for a package."
    )
    return fill(sentences, 100, break_on_hyphens=False)


def counts_of(results: Sequence[Result]) -> str:
    """Returns how many packages had which outcome, and how the others compare."""
    counts = Counter(map(outcome_of, results))
    constructed = [result for result in results if "check_env" in result["steps"]]
    passing = [
        result for result in constructed if result["steps"]["check_env"]["outcome"] == "passes"
    ]
    refused = [result for result in passing if outcome_of(result) == REFUSED]
    trained = [result for result in results if outcome_of(result) == TRAINS]
    equal = [result for result in trained if result["scores"] == EQUAL]
    rows = [[text, f"{counts[name]}"] for name, text in OUTCOMES.items() if counts[name]]
    sentences = (
        f"Tried: {len(results)} of {pluralize(len(read_packages()), 'package')}. In "
        f"{len(constructed)}, an environment could be constructed; {len(passing)} of these pass "
        f"check_env, and border_cli refused {len(refused)} of the latter. Of the "
        f"{len(trained)} that trained, {len(equal)} have scores equal to those of a plain loop."
    )
    return (
        f"{fill(sentences, 100, break_on_hyphens=False)}\n\n{table(('outcome', 'packages'), rows)}"
    )


def row_of(result: Result) -> list[str]:
    """Returns the cells of a package's row."""
    steps = result["steps"]
    outcome = outcome_of(result)
    check = steps.get("check_env", {}).get("outcome", NOTHING)
    is_tried = "train" in steps
    return [
        f"{result['package']} {result['version']}".strip(),
        code(result["id"].rpartition(":")[2]) if result["id"] else NOTHING,
        code(result["command"].removeprefix("border-train ")) if is_tried else NOTHING,
        {"passes": "yes", "fails": "no"}.get(check, check),
        {TRAINS: "yes"}.get(outcome, outcome),
        scores_of(result),
        remark_of(result),
    ]


def scores_of(result: Result) -> str:
    """Returns the cell of the comparison."""
    scores = result["scores"]
    others = [f"equal with {description}" for description in OTHER_LOOPS.values()]
    return {"": NOTHING, EQUAL: "yes"}.get(scores, scores if scores in others else "no")


def remark_of(result: Result) -> str:
    """Returns the reason in plain words, with a quoted message shortened."""
    reason = reason_of(result)
    # What it says about installing border_cli is meant for a user whose index has it.
    text = reason.partition(": pip install")[0]
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS].rstrip()} …"
    return escape(text)


def code(text: str) -> str:
    """Returns inline code for a cell of a table."""
    return f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def escape(text: str) -> str:
    """Returns plain text as Markdown of a cell."""
    for character in "\\`*_<>[]|~":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
