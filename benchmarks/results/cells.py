"""Finished cells: one small JSON file for each seed of each row."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.results.kinds import Cell, Row
from benchmarks.results.rows import ROWS
from benchmarks.results.settings import Settings, differences, settings_of
from benchmarks.results.versions import Reasons, changed_versions, read_versions

FOLDER = Path(__file__).parent / "cells"
ROOT = Path(__file__).parents[2]
Content = dict[str, Any]


def path_of(cell: Cell) -> Path:
    """Returns the path of a cell's file."""
    return FOLDER / cell.row.name / f"{cell.seed}.json"


def read(cell: Cell) -> Content | None:
    """Returns the content of a cell, or None if it is not finished."""
    try:
        content: Content = json.loads(path_of(cell).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content


def finished(row: Row) -> dict[int, Content]:
    """Returns the finished cells of a row by seed, including seeds beyond those of the row."""
    seeds = sorted(int(file.stem) for file in (FOLDER / row.name).glob("*.json"))
    return {seed: content for seed in seeds if (content := read(Cell(row, seed)))}


def write(cell: Cell, content: Content) -> None:
    """Writes a cell atomically, with one key per line for readable diffs."""
    path = path_of(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {_indented(value)}" for key, value in content.items()]
    draft = path.with_suffix(".draft")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    draft.replace(path)


def _indented(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    pairs = (f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
    return "{\n" + ",\n".join(pairs) + "\n}"


def changes(cell: Cell) -> list[str]:
    """Returns the reasons why a finished cell is stale; empty if it is up to date."""
    content = read(cell)
    if content is None:
        return []
    reasons = stale_reasons(cell.row, content, settings_of(cell.row), read_versions())
    needed = cell.row.needs
    source = read(Cell(ROWS[needed], 0)) if needed else None
    if source and content.get("data", {}).get("checksum") != source.get("checksum"):
        reasons.append(f"{needed} was recorded again and differs")
    return reasons


def stale_reasons(row: Row, content: Content, settings: Settings, versions: Reasons) -> list[str]:
    """Compares a cell with current settings and versions; empty if both have the same effect."""
    return [
        *differences(content["settings"], settings),
        *changed_versions(content.get("versions", {}), row, versions),
    ]


def commit() -> str | None:
    """Returns the commit of this clone, with a plus sign if files have changed since."""
    git = shutil.which("git")
    if git is None:
        return None

    def git_output(*words: str) -> str:
        command = [git, "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git_output("status", "--porcelain", "--", "border_cli", "conf")
    return git_output("rev-parse", "--short=12", "HEAD") + ("+" if changed else "") or None
