"""docs/walks.md names the files that its walks enter, as docs/make_walks.py runs them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from sampling import chosen

ROOT = Path(__file__).parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "make_walks.py"))
WALKS, ITEMS = MADE["WALKS"], MADE["items"]()
ALONE = {"dqn", "sac"}  # one thread: which functions it enters does not depend on the moment
UNORDERED = {"threads", "processes", "ctrl-c", "checkpoint"}  # of several threads


def test_every_file_on_the_page_has_a_clause() -> None:
    assert {each.walk for each in ITEMS} == WALKS.keys()
    assert [each for each in ITEMS if each.clause in ("", MADE["MISSING"])] == []


def test_every_function_on_the_page_is_defined_in_its_file() -> None:
    for each in ITEMS:
        source = (ROOT / "border_cli" / each.file).read_text(encoding="utf-8")
        defined = {"<lambda>", *re.findall(r"^ *(?:async )?def (\w+)", source, re.MULTILINE)}
        names = {name.rpartition(".")[2] for name in each.functions}
        assert names - defined == set(), f"{each.file}: run python docs/make_walks.py"


@pytest.mark.long
@pytest.mark.parametrize("name", chosen(WALKS.keys(), ["first update"]))
def test_a_run_enters_the_files_of_its_walk(name: str, tmp_path: Path) -> None:
    parts = MADE["walked"](WALKS[name], tmp_path)
    entered = [
        (part, file, *(functions if name in ALONE else ()))
        for part, files in parts.items()
        for file, functions in files.items()
    ]
    written = [
        (each.part, each.file, *(each.functions if name in ALONE else ()))
        for each in ITEMS
        if each.walk == name
    ]
    if name in UNORDERED:
        entered, written = sorted(entered), sorted(written)
    assert entered == written, "run: python docs/make_walks.py"
