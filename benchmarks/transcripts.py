"""Records what the commands print, return and write, so that two checkouts can be compared.

    python -m benchmarks.transcripts --bin .venv/bin > before.jsonl       # one line per case
    python -m benchmarks.transcripts --bin other/bin > after.jsonl
    python -m benchmarks.transcripts --compare before.jsonl after.jsonl   # diffs; status 1 if any

Cases are the lines of `transcripts.txt`, run in order in one empty directory, so that a later line
can use the run of an earlier one. A case consists of the exit status, the output on both streams
and the files written: their names, the keys of JSON documents and the metrics of rows. Directories,
times and process ids are replaced by placeholders. In cases marked with `#`, which measure
something, numbers are replaced, too, and the output is a sorted set of lines, because the order of
a table of times varies.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import say

CASES = Path(__file__).with_name("transcripts.txt")
TIMEOUT_S = 120.0
SHELL = {"COLUMNS": "120", "TERM": "dumb"}
NUMBER = re.compile(r"(?<![A-Za-z_\[])-?\d[\d,.:]*(?:e[+-]?\d+)?")
WORDS = (
    (re.compile(r"\d{4}-\d\d-\d\d[_T ]\d\d[-:]\d\d[-:]\d\d(?:-\d{6}|[+-]\d{4})?"), "TIME"),
    (re.compile(r"\[\d\d:\d\d:\d\d\]"), "[TIME]"),
    (re.compile(r"\bprocess \d+"), "process PID"),
    (re.compile(r"[\d.]+ (?:[kMGT]i?)?B\b"), "SIZE"),
    (re.compile(r"rows-[-0-9a-f.]+"), "rows-"),
    (re.compile(r"\S+/conf/"), "CONF/"),
)
MEASURED = (
    (NUMBER, "N"),
    (re.compile(r" - (?=\w+/)"), " N "),  # no rate yet
    (re.compile(r"\bN (?:s|min|h)\b"), "N UNIT"),
    (re.compile(r"^(bottleneck|learning|evaluating|stopping) .*", re.MULTILINE), ""),
    (re.compile(r"[─━]{2,}"), "──"),
    (re.compile(r" +"), " "),
)

Case = dict[str, Any]


def plain(text: str, folder: Path, commands: Path, *, numbers: bool) -> list[str]:
    """Returns the lines of an output without the parts that differ between two equal runs."""
    for path, word in ((folder, "DIR"), (commands.parent, "VENV")):
        text = text.replace(str(path), word)
    for pattern, word in WORDS if numbers else (*WORDS, *MEASURED):
        text = pattern.sub(word, text)
    lines = text.splitlines()
    return lines if numbers else sorted(set(lines))


def new_files(folder: Path, since: set[Path]) -> dict[str, Any]:
    """Returns the new files of a case, with the keys of JSON files."""
    files: dict[str, Any] = {}
    for path in sorted(set(folder.rglob("*")) - since):
        if path.is_dir() and not path.is_symlink():
            continue
        name = str(path.relative_to(folder))
        for pattern, word in (*WORDS, MEASURED[0]):
            name = pattern.sub(word, name)
        files[name] = _keys(path) if path.is_file() else "link"
    return files


def _keys(path: Path) -> Any:
    if path.suffix == ".json":
        return _shape(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return sorted({key for row in rows for key in row})
    return "file"


def _shape(content: object, depth: int = 0) -> Any:
    """Returns the keys of a document, two levels deep."""
    if not isinstance(content, dict) or depth > 1:
        return type(content).__name__
    return {NUMBER.sub("N", key): _shape(value, depth + 1) for key, value in content.items()}


def play(line: str, folder: Path, commands: Path) -> Case:
    """Runs one case."""
    measured = line.startswith("# ")
    typed = shlex.split(line.removeprefix("# "))
    before = set(folder.rglob("*"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("BORDER_", "HYDRA_"))}
    process = subprocess.run(
        [str(commands / typed[0]), *typed[1:]],
        cwd=folder,
        env={**environment, **SHELL, "MINARI_DATASETS_PATH": str(folder / "datasets")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return {
        "case": line,
        "status": process.returncode,
        "printed": plain(process.stdout, folder, commands, numbers=not measured),
        "errors": plain(process.stderr, folder, commands, numbers=not measured),
        "written": new_files(folder, before),
    }


def cases() -> Iterator[str]:
    for line in CASES.read_text().splitlines():
        if line.strip() and not line.startswith("##"):
            yield line.strip()


def compare(before: Path, after: Path) -> int:
    """Prints the differences case by case; returns the number of cases that differ."""
    old, new = (
        {case["case"]: case for case in map(json.loads, path.read_text().splitlines())}
        for path in (before, after)
    )
    differing = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    for name in differing:
        lines_before, lines_after = (
            json.dumps(cases_by_name.get(name), indent=1, ensure_ascii=False).splitlines()
            for cases_by_name in (old, new)
        )
        lines = difflib.unified_diff(lines_before, lines_after, lineterm="", n=1)
        sys.stdout.write("\n".join([f"== {name}", *list(lines)[2:], "", ""]))
    say(f"{len(differing)} of {len({**old, **new})} cases differ")
    return len(differing)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--only", default="", help="cases that contain this text")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(1 if compare(*arguments.compare) else 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for line in cases():
            if arguments.only in line:
                say(line)
                case = play(line, folder, arguments.bin.absolute())
                print(json.dumps(case, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
