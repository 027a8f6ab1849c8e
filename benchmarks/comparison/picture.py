"""Small panels of learning curves as an SVG, which is the same to the byte for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Points = Sequence[Sequence[float]]
Curves = Mapping[str, Mapping[str, Points]]  # panel -> run -> points

WIDTH, HEIGHT, COLUMNS = 300, 170, 3
LEFT, TOP, RIGHT, BOTTOM = 44, 26, 12, 26  # margins of a panel
RUNS = ("undivided", "resumed")
COLORS = ("#0072B2", "#D55E00")


def draw(curves: Curves) -> str:
    """Draws a panel per tool; the run that was cut has a dotted line in the middle."""
    rows = -(-len(curves) // COLUMNS)
    width, height = WIDTH * COLUMNS, HEIGHT * rows + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (panel, runs) in enumerate(curves.items()):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        lines += [f'<g transform="translate({x},{y})">', *_panel(panel, runs), "</g>"]
    for number, run in enumerate(RUNS):
        x, y = LEFT + number * 120, height - 8
        lines.append(f'<path d="M{x} {y - 4}h24" stroke="{COLORS[number]}" stroke-width="2"/>')
        lines.append(f'<text x="{x + 30}" y="{y}">{run}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: str, runs: Mapping[str, Points]) -> Iterator[str]:
    points = [point for curve in runs.values() for point in curve]
    right = max(step for step, _ in points)
    low, high = min(0.0, *(score for _, score in points)), max(score for _, score in points)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(step: float, score: float) -> str:
        x = LEFT + plot_width * step / right
        y = TOP + plot_height * (high - score) / max(high - low, 1.0)
        return f"{x:.1f} {y:.1f}"

    yield f'<text x="{LEFT}" y="16" font-weight="bold">{panel}</text>'
    yield f'<path d="M{LEFT} {TOP}v{plot_height}h{plot_width}" fill="none" stroke="#888"/>'
    yield (
        f'<path d="M{LEFT + plot_width / 2:.1f} {TOP}v{plot_height}" stroke="#888"'
        ' stroke-dasharray="2 3"/>'
    )
    for score, y in ((high, TOP + 4), (low, TOP + plot_height + 4)):
        yield f'<text x="{LEFT - 4}" y="{y}" text-anchor="end">{score:.0f}</text>'
    for share in (0.5, 1.0):
        x = LEFT + plot_width * share
        label = f"{right * share:,.0f}" + (" env steps" if share == 0.5 else "")
        anchor = "middle" if share == 0.5 else "end"
        yield f'<text x="{x:.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{label}</text>'
    for number, run in enumerate(RUNS):
        path = "L".join(at(step, score) for step, score in runs.get(run, ()))
        if path:
            color, width = COLORS[number], 3 - number
            yield f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="{width}"/>'
