"""The curves of one environment as text: braille dots, and a letter for each group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from border_cli.analysis.curves import X_NAMES, Panel
from border_cli.analysis.tables import number

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
BRAILLE = 0x2800
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of one character
NARROWEST, WIDEST = 20, 120  # characters of the canvas
LETTERS_APART = 24  # characters between two letters on one curve


class Piece(NamedTuple):
    """Text of one group, or of none."""

    text: str
    group: int | None = None


Line = list[Piece]


def letter(group: int) -> str:
    """A, B, … of a group; `*` beyond 52 of them."""
    return LETTERS[group] if group < len(LETTERS) else "*"


def chart(
    panel: Panel, groups: tuple[str, ...], x_name: str, *, width: int, height: int, braille: bool
) -> list[Line]:
    """The lines of the plot with its axes; without `braille` letters alone draw the curves."""
    mids = [curve.y.mid for curve in panel.curves]
    low, high = _range(np.concatenate(mids))
    left, right = _range(np.concatenate([curve.x for curve in panel.curves]))
    labels = [number(low + (high - low) * share, low, high) for share in (1.0, 0.5, 0.0)]
    margin = max(map(len, labels))
    columns = min(max(width - margin - 2, NARROWEST), WIDEST)
    canvas = _Canvas(columns, height, braille)
    for curve in panel.curves:
        canvas.draw(
            (curve.x - left) / (right - left),
            (curve.y.mid - low) / (high - low),
            groups.index(curve.group),
        )
    places = {0: labels[0], height // 2: labels[1], height - 1: labels[2]}
    lines = [
        [Piece(f"{places.get(row, ''):>{margin}} {'┤' if braille else '|'}"), *canvas.row(row)]
        for row in range(height)
    ]
    unit = X_NAMES[x_name]
    start, end = f"{left:,.0f}", f"{right:,.0f} {unit}"
    lines.append([Piece(" " * (margin + 2) + start + end.rjust(columns - len(start)))])
    return lines


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


class _Canvas:
    """Characters with the group that drew each last; row 0 is the top."""

    def __init__(self, columns: int, rows: int, braille: bool) -> None:
        self._dots = np.zeros((rows, columns), np.int64)
        self._owners = np.full((rows, columns), -1)
        self._letters = np.zeros((rows, columns), np.bool_)
        self._braille = braille

    def draw(self, x: NDArray[np.float64], y: NDArray[np.float64], group: int) -> None:
        """A curve with both coordinates between 0 and 1."""
        rows, columns = self._dots.shape
        wide, high = (2 * columns, 4 * rows) if self._braille else (columns, rows)
        across = np.arange(round(x[0] * (wide - 1)), round(x[-1] * (wide - 1)) + 1)
        heights = np.interp(across / (wide - 1), x, y)
        down = np.round((1 - heights) * (high - 1)).astype(int)
        before = down[0]
        for column, row in zip(across.tolist(), down.tolist(), strict=True):
            step = 1 if row >= before else -1
            for each in range(before + step if row != before else row, row + step, step):
                self._set(column, each, group)
            before = row
        if self._braille:
            self._label(across, down, group)

    def _set(self, column: int, row: int, group: int) -> None:
        if self._braille:
            place = row // 4, column // 2
            self._dots[place] |= DOTS[row % 4, column % 2]
        else:
            place = row, column
            self._letters[place] = True
        if not (self._braille and self._letters[place]):
            self._owners[place] = group

    def _label(self, across: NDArray[np.int64], down: NDArray[np.int64], group: int) -> None:
        """Letters along the curve, shifted by group so that equal curves show all of theirs."""
        first = (5 * group + 2) % LETTERS_APART
        for at in range(2 * first, len(across), 2 * LETTERS_APART):
            place = down[at] // 4, across[at] // 2
            if not self._letters[place]:
                self._letters[place] = True
                self._owners[place] = group

    def row(self, number: int) -> Line:
        """One line of the canvas, cut where the group changes."""
        pieces: Line = []
        for column, owner in enumerate(self._owners[number].tolist()):
            text = self._character(number, column)
            group = owner if owner >= 0 else None
            if pieces and pieces[-1].group == group:
                text = pieces.pop().text + text
            pieces.append(Piece(text, group))
        return pieces

    def _character(self, row: int, column: int) -> str:
        if self._letters[row, column]:
            return letter(int(self._owners[row, column]))
        dots = int(self._dots[row, column])
        return chr(BRAILLE + dots) if dots else " "
