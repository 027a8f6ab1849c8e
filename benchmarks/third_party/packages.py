"""The packages to try, and the files of their results."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = Path(__file__).with_name("packages.csv")
RESULTS = ROOT / "benchmarks" / "results" / "third_party"
START = r"(?:(?<![\w.])|(?<=\\[nt]))/"  # of a path in JSON, where line breaks are escaped
PATHS = {  # regular expression -> what is shown instead
    r"file://[^\s\"\\]+": "(index)",
    rf"{START}(?:[\w.+-]+/)+(?=site-packages/|border_cli/|benchmarks/|python3\.\d+/)": "…/",
    rf"{START}(?:tmp|root|home|work|opt)/[^\s\"':,)\\]*": "…",
}

Result = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Package:
    """A distribution on the package index. The other fields are written by hand, for packages whose
    environment the trial does not find by itself."""

    name: str
    group: str  # downloads, known or drawn
    requirements: tuple[str, ...] = ()  # further arguments of pip install
    env_id: str = ""  # such as module:Id-v0
    imports: tuple[str, ...] = ()  # modules to import first
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # arguments of the constructor


def read_packages(path: Path = PACKAGES) -> dict[str, Package]:
    """Returns the packages by name, in the order of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        packages = [
            Package(
                name=row["package"],
                group=row["group"],
                requirements=tuple(shlex.split(row["requirements"])),
                env_id=row["id"],
                imports=tuple(row["imports"].split()),
                kwargs=json.loads(row["kwargs"] or "{}"),
            )
            for row in csv.DictReader(file)
        ]
    return {package.name: package for package in packages}


def result_path(name: str) -> Path:
    """Returns the file of a package's result."""
    return RESULTS / f"{name}.json"


def read_results() -> dict[str, Result]:
    """Returns all stored results by the name of the package, in the order of `packages.csv`."""
    paths = {name: result_path(name) for name in read_packages()}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def write_result(result: Result) -> None:
    """Writes the result of a package; the file appears only when it is complete."""
    path = result_path(result["package"])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    content = hide_paths(json.dumps(result, indent=1, ensure_ascii=False))
    unfinished.write_text(f"{content}\n", encoding="utf-8")
    unfinished.replace(path)


def hide_paths(text: str) -> str:
    """Shortens paths of the machine in messages and tracebacks."""
    for pattern, shown in PATHS.items():
        text = re.sub(pattern, shown, text)
    return text
