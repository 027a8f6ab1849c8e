"""Claims of pages: paragraphs with measured numbers or strong words, their ids and their proofs.

An id is a comment, `<!-- claim: ID … -->`, at the end of a paragraph or list item, or in the line
above a table. `docs/claims.yaml` maps each id to a proof: a test, or values of a JSON file.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

COMMENT = re.compile(r"<!-- claim: ([\w -]*\w) -->")
HIDDEN = re.compile(  # is no text: comments, code, targets of links
    r"<!--.*?-->|`[^`]*`|(?<=\])\([^)]*\)|(?<=\])\[[^]]*\]|^\[[\w-]+\]: .*$", re.M | re.S
)
FENCE = re.compile(r"^\s*```")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s|^#+ ")

NUMBER = r"(?<![\w.,])(?<!\w-)[-+−]?\d+(?:,\d{3})*(?:\.\d+)?"
END = r"(?!\w|[.,]\d)"
UNIT = (
    r"(?:seconds?|minutes?|min|hours?|days?|[mµn]?s|h|[kKMGT]i?B|bytes|percent|times|[%×]"
    r"|(?:[A-Za-z]+\s+){0,2}[A-Za-z]+/s)(?!\w)"
)
CLAIM = re.compile(
    rf"{NUMBER}(?:\s*{UNIT}|x(?!\w))"
    rf"|{NUMBER}{END}\s*±"
    rf"|{NUMBER}{END}\s+of\s+{NUMBER}{END}"
    rf"|{NUMBER}{END}\s+\({NUMBER}"
    rf"|\b(?:scor|return)\w*(?:\s+(?!over\b)\w+){{0,3}}?[\s:]+{NUMBER}{END}"
    r"|\b(?:never|always|exactly|to\s+the\s+bit|bit\s+for\s+bit|bit-\w+|bitwise)\b",
    re.IGNORECASE,
)
FIGURE = re.compile(NUMBER + r"(?![.,]\d)")
CELL = re.compile(r"[-+−±.,%×()–\s\d]*\d[-+−±.,%×()–\s\d]*")  # a cell that is only a figure
KEYS = {"test", "file", "values", "rows", "columns"}

Proof = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, list item, heading or table of a page."""

    line: int
    text: str

    @property
    def ids(self) -> list[str]:
        return [name for comment in COMMENT.findall(self.text) for name in comment.split()]

    @property
    def visible(self) -> str:
        """The text with hidden parts overwritten, so that lines keep their places."""
        return HIDDEN.sub(lambda part: re.sub(r"[^\n]", "`", part[0]), self.text)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table's body without the first column; [] if this is no table."""
        lines = [line for line in self.visible.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines[2:]]

    def claims(self) -> list[tuple[int, str]]:
        """Returns the claims with their lines; of a table, one is enough."""
        matches = list(CLAIM.finditer(self.visible))
        claims = [(self.visible.count("\n", 0, match.start()), match[0]) for match in matches]
        claims += [(0, cell) for row in self.rows for cell in row if CELL.fullmatch(cell)]
        return [(self.line + below, " ".join(text.split())) for below, text in claims]

    def figures(self) -> list[tuple[str, bool]]:
        """Returns the numbers in reading order, and whether each must have a proof."""
        if self.rows:
            return [
                (figure, True) for row in self.rows for figure in FIGURE.findall(" | ".join(row))
            ]
        spans = [match.span() for match in CLAIM.finditer(self.visible)]
        return [
            (match[0], any(first <= match.start() < last for first, last in spans))
            for match in FIGURE.finditer(self.visible)
        ]


def paragraphs(page: str) -> Iterator[Paragraph]:
    """Yields the parts of a page outside of code blocks."""
    lines: list[str] = []
    fenced = False
    for number, line in enumerate([*page.splitlines(), ""], 1):
        fence = bool(FENCE.match(line))
        fenced ^= fence
        ends = fence or fenced or not line.strip() or ITEM.match(line) or line.startswith("<!--")
        if ends and lines:
            yield Paragraph(number - len(lines), "\n".join(lines))
            lines = []
        if not fence and not fenced and line.strip():
            lines.append(line)


def problems(pages: Mapping[str, str], proofs: Mapping[str, Proof], root: Path) -> list[str]:
    """Returns what is wrong with the claims of the pages; file names are relative to `root`."""
    found, used = [], set[str]()
    for name, page in pages.items():
        for paragraph in paragraphs(page):
            used |= set(paragraph.ids)
            if not paragraph.ids:
                found += [f"{name}:{line}: no id for {text!r}" for line, text in paragraph.claims()]
            unknown = [f"unknown id {id_}" for id_ in paragraph.ids if id_ not in proofs]
            wrong = unknown or _mismatch([proofs[id_] for id_ in paragraph.ids], paragraph, root)
            found += [f"{name}:{paragraph.line}: {problem}" for problem in wrong]
    found += [f"no page uses {id_}" for id_ in proofs.keys() - used]
    return found + [f"{id_}: {p}" for id_, proof in proofs.items() for p in _absent(proof, root)]


def fill(page: str, proofs: Mapping[str, Proof], root: Path) -> str:
    """Returns the page with the values of the files in its tables, each with as many decimals as
    the figure that it replaces. Text between tables is left as it is."""
    lines = page.splitlines()
    for paragraph in paragraphs(page):
        named = [proofs[id_] for id_ in paragraph.ids]
        if not paragraph.rows or not named or any("file" not in proof for proof in named):
            continue
        values = [value for proof in named for value in values_of(proof, root)]
        body = [
            (number, line)
            for number, line in enumerate(paragraph.visible.splitlines(), paragraph.line - 1)
            if line.startswith("|")
        ][2:]
        places = [
            (number, *match.span())
            for number, line in body
            for match in FIGURE.finditer(line, line.index("|", 1))
        ]
        for (number, start, end), value in reversed([*zip(places, values, strict=True)]):
            line = lines[number]
            lines[number] = f"{line[:start]}{_as_shown(line[start:end], value)}{line[end:]}"
    return "\n".join(lines) + "\n"


def _as_shown(figure: str, value: float) -> str:
    """Returns a value with the decimals of a figure."""
    return f"{value:,.{len(figure.partition('.')[2])}f}"


def _absent(proof: Proof, root: Path) -> Iterator[str]:
    """Yields what is missing of a proof."""
    if not {"test", "file"} & proof.keys() or not proof.keys() <= KEYS:
        yield f"a proof is a test, or a file with values, not {sorted(proof)}"
    for test in _as_list(proof.get("test", [])):
        file, _, name = test.partition("::")
        if not re.fullmatch(r"tests/(?:\w+/)*test_\w+\.py", file) or not (root / file).is_file():
            yield f"no test file {file}"
        elif not name.startswith("test_") or name not in functions_in(root / file):
            yield f"no test {name} in {file}"


@cache
def functions_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def _mismatch(proofs: Sequence[Proof], paragraph: Paragraph, root: Path) -> Iterator[str]:
    """Yields a problem if the values of the files are not the numbers of the paragraph."""
    files = [proof for proof in proofs if "file" in proof]
    if not files:
        return
    try:
        values = [value for proof in files for value in values_of(proof, root)]
    except (OSError, LookupError, TypeError, ValueError) as error:
        yield f"{type(error).__name__}: {error}"
        return
    tested = any("test" in proof for proof in proofs)
    figures = [(figure, must and not tested) for figure, must in paragraph.figures()]
    if not _agree(figures, values):
        shown = [figure for figure, must in figures if must or tested]
        yield f"the page has {', '.join(shown)}, the files {', '.join(map(str, values))}"


def values_of(proof: Proof, root: Path) -> list[float]:
    """Returns the values of a file in the order of the page; `{}` in a column stands for a row."""
    content = json.loads((root / proof["file"]).read_text(encoding="utf-8"))["rows"]
    table = product(proof.get("rows", []), proof.get("columns", []))
    keys = [*proof.get("values", []), *(column.replace("{}", row) for row, column in table)]
    if not keys:
        raise LookupError(f"no values of {proof['file']} are named")
    return [value for key in keys for value in _flat(_look_up(content, key.split(".")))]


def _look_up(content: Any, path: Sequence[str]) -> Any:
    for key in path:
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def _flat(value: Any) -> list[float]:
    """Returns a number, or median, minimum and maximum."""
    if isinstance(value, Mapping):
        return [value[name] for name in ("median", "min", "max") if name in value]
    return [float(value)]


def _agree(figures: Sequence[tuple[str, bool]], values: Sequence[float]) -> bool:
    """Returns whether the values are among the figures, in order, with all that need a proof."""
    if not figures:
        return not values
    (figure, must), *rest = figures
    if values and shows(figure, values[0]) and _agree(rest, values[1:]):
        return True
    return not must and _agree(rest, values)


def shows(figure: str, value: float) -> bool:
    """Returns whether the figure is the value rounded to the figure's decimals."""
    number = figure.replace(",", "").replace("−", "-").removeprefix("+")
    return f"{value:.{len(number.partition('.')[2])}f}" == number


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
