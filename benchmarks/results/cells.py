"""The cells that are finished: one small JSON file for each seed of each row."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.results.kinds import Cell, Row
from benchmarks.results.rows import ROWS
from benchmarks.results.settings import differences, settings_of

FOLDER = Path(__file__).parent / "cells"
ROOT = Path(__file__).parents[2]
Content = dict[str, Any]


def path_of(cell: Cell) -> Path:
    """Where a cell is kept."""
    return FOLDER / cell.row.name / f"{cell.seed}.json"


def read(cell: Cell) -> Content | None:
    """What a cell holds; None where it is not finished."""
    try:
        content: Content = json.loads(path_of(cell).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return content


def finished(row: Row) -> dict[int, Content]:
    """The finished cells of a row, by seed, also of seeds beyond those the row asks for."""
    seeds = sorted(int(file.stem) for file in (FOLDER / row.name).glob("*.json"))
    return {seed: content for seed in seeds if (content := read(Cell(row, seed)))}


def write(cell: Cell, content: Content) -> None:
    """Keeps a cell, all at once; one key per line, so that a change reads well."""
    path = path_of(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {_indented(value)}" for key, value in content.items()]
    draft = path.with_suffix(".draft")
    draft.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    draft.replace(path)


def _indented(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    pairs = (f"  {json.dumps(key)}: {json.dumps(each)}" for key, each in value.items())
    return "{\n" + ",\n".join(pairs) + "\n}"


def changes(cell: Cell) -> list[str]:
    """Why a finished cell is stale, in words; nothing where it is as if made now."""
    content = read(cell)
    if content is None:
        return []
    found = differences(content["settings"], settings_of(cell.row))
    needed = cell.row.needs
    source = read(Cell(ROWS[needed], 0)) if needed else None
    if source and content.get("data", {}).get("checksum") != source.get("checksum"):
        found.append(f"{needed} was recorded anew, and differs")
    return found


def commit() -> str | None:
    """The commit of this clone; with a plus sign where files have changed since."""
    git = shutil.which("git")
    if git is None:
        return None

    def answer(*words: str) -> str:
        command = [git, "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = answer("status", "--porcelain", "--", "border_cli", "conf")
    return answer("rev-parse", "--short=12", "HEAD") + ("+" if changed else "") or None
