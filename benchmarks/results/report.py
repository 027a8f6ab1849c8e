"""Writes docs/inside/results.md and its curves from the finished cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template

from benchmarks.markdown import table
from benchmarks.results.cells import ROOT, Content, changes, finished
from benchmarks.results.judging import (
    Finished,
    Spread,
    difference,
    over_seeds,
    spread,
    success_over_seeds,
    verdict,
)
from benchmarks.results.kinds import Cell, Peer, Recording, Row, Run
from benchmarks.results.rows import EPISODES, ROWS
from border_cli.errors import BorderError
from border_cli.words import pluralize

PAGE = ROOT / "docs" / "inside" / "results.md"
TEMPLATE = Path(__file__).with_name("page.md")
CURVES = ROOT / "docs" / "inside" / "results"
MET = {True: "yes", False: "**no**", None: ""}
NOTHING = "–"
MEASURED = ["row", "seeds", "best", "worst seed", "last", "env steps", "updates", "wall"]


def write_report() -> None:
    """Writes the page and a plot for each row that has a finished cell."""
    from benchmarks.results.curves import draw

    done = {name: finished(row) for name, row in ROWS.items()}
    for name, row in ROWS.items():
        if isinstance(row, Run) and done[name]:
            mine = {name: done[name]} | {
                f"Stable-Baselines3 {peer.algorithm}": done[peer.name] for peer in _peers(name)
            }
            draw(CURVES / f"{name}.svg", name, mine, "opt_steps" if row.recording else "env_steps")
    stale = [name for name, row in ROWS.items() if _stale(row, done[name])]
    PAGE.write_text(mark(page(done), stale), encoding="utf-8")


def mark(page: str, names: Iterable[str]) -> str:
    """Marks the rows with these names as stale."""
    for name in names:
        page = page.replace(f"\n| {name} |", f"\n| {name} † |")
    return page


def page(done: Finished) -> str:
    """Returns the whole page, without marks."""
    rows = list(ROWS.values())
    runs = [row for row in rows if isinstance(row, Run) and row.seeds > 1]
    drawn = (f"![{row.name}](results/{row.name}.svg)" for row in runs if done[row.name])
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        online=_online([row for row in runs if not row.recording and not row.score_range], done),
        on_policy=_on_policy([row for row in runs if row.score_range], done),
        peers=_peer_table([row for row in rows if isinstance(row, Peer) and done[row.name]], done),
        episodes=EPISODES,
        recordings=_recordings([row for row in rows if isinstance(row, Recording)], done),
        offline=_offline([row for row in runs if row.recording], done),
        curves="\n".join(drawn),
        machines=_machines(done),
    )


def _online(rows: Sequence[Run], done: Finished) -> str:
    def line(row: Run) -> list[str]:
        beside = [
            f"{_pm(over_seeds(done[peer.name]))} ({_pm(over_seeds(done[peer.name], 'last'))})"
            for peer in _peers(row.name)
            if done[peer.name]
        ]
        return [
            *_score_columns(row, done[row.name]),
            *_bar_columns(row, done),
            row.published,
            *beside,
        ]

    head = [*MEASURED, "must reach", "reached", "published", "SB3 best (last)"]
    return _table(head, map(line, rows))


def _on_policy(rows: Sequence[Run], done: Finished) -> str:
    def line(row: Run) -> list[str]:
        (peer,) = _peers(row.name)
        ours, theirs = done[row.name], done[peer.name]
        assert row.score_range is not None
        gap = difference(ours, theirs, row.score_range)
        shown = f"{gap.mean:+.1f} ({gap.low:+.1f} to {gap.high:+.1f})" if gap else NOTHING
        low, high = row.score_range
        times = (
            f"{_duration(times)}, {_duration(their_times)}"
            for times, their_times in (
                [[cell[name] for cell in cells.values()] for cells in (ours, theirs)]
                for name in ("cpu_s", "wall_s")
            )
        )
        counts = [f"{len(cells)}" for cells in (ours, theirs)]
        return [
            row.name,
            f"{counts[0]}, {counts[1]} of {row.seeds}",
            *(_score(cells, "last") for cells in (ours, theirs)),
            f"{low:g} to {high:g}",
            shown,
            *times,
            row.published,
        ]

    head = ["row", "seeds", "last", "SB3 last", "range", "difference, % of the range"]
    return _table([*head, "CPU: ours, SB3", "wall: ours, SB3", "published"], map(line, rows))


def _offline(rows: Sequence[Run], done: Finished) -> str:
    def line(row: Run) -> list[str]:
        cells = _score_columns(row, done[row.name])
        del cells[MEASURED.index("env steps")]
        return [*cells, _normalized(row, done), *_bar_columns(row, done)]

    head = [title for title in MEASURED if title != "env steps"]
    return _table([*head, "normalized best (last)", "must reach", "reached"], map(line, rows))


def _normalized(row: Run, done: Finished) -> str:
    """Normalizes scores: 0 and 100 are the reference scores stored in the data set."""
    data = done[row.recording or ""].get(0)
    models = [over_seeds(done[row.name], model) for model in ("best", "last")]
    if data is None or data["ref_min_score"] is None:
        return NOTHING
    low, high = data["ref_min_score"], data["ref_max_score"]
    scores = [f"{100 * (summary.mean - low) / (high - low):.1f}" for summary in models if summary]
    return f"{scores[0]} ({scores[1]})" if scores else NOTHING


def _bar_columns(row: Run, done: Finished) -> list[str]:
    model = "last" if row.recording else "best"
    result = verdict(row.name, row.bar, row.seeds, done, model=model)
    return [result.asked, MET[result.met]]


def _score_columns(row: Row, cells: Mapping[int, Content]) -> list[str]:
    best = over_seeds(cells)
    return [
        row.name,
        f"{len(cells)} of {row.seeds}" if len(cells) < row.seeds else str(len(cells)),
        *(_score(cells, "best"), f"{best.worst:.1f}" if best else NOTHING, _score(cells, "last")),
        *(_mean(cells, name) for name in ("env_steps", "opt_steps")),
        _duration([cell["wall_s"] for cell in cells.values()]),
    ]


def _peer_table(rows: Sequence[Peer], done: Finished) -> str:
    return _table(MEASURED, (_score_columns(row, done[row.name]) for row in rows))


def _recordings(rows: Sequence[Recording], done: Finished) -> str:
    head = ["data set", "recorded by", "episodes", "steps", "return", "random", "expert"]

    def line(row: Recording) -> list[str]:
        cell = done[row.name].get(0)
        if cell is None:
            return [row.dataset, f"`{' '.join(row.typed)}`", *[NOTHING] * 5]
        recorded = cell["recorded"]
        scores = (cell["ref_min_score"], cell["ref_max_score"])
        return [
            *(
                row.dataset,
                f"`{' '.join(row.typed)}`",
                str(recorded["episodes"]),
                f"{cell['steps']:,}",
            ),
            f"{recorded['mean']:.1f} ± {recorded['std']:.1f}",
            *(NOTHING if score is None else f"{score:.1f}" for score in scores),
        ]

    return _table(head, map(line, rows))


def _machines(done: Finished) -> str:
    """Lists the machines and versions on which the cells were run."""
    lines: dict[str, int] = {}
    for cells in done.values():
        for cell in cells.values():
            machine = cell["machine"]
            packages = ("python", "torch", "numpy", "gymnasium", "stable-baselines3")
            versions = ", ".join(f"{package} {machine[package]}" for package in packages)
            jobs = pluralize(machine["jobs"], "parallel job")
            cores = pluralize(machine["cores"], "core")
            line = f"{machine['cpu']}, {cores}, {jobs}; {versions}"
            lines[line] = lines.get(line, 0) + 1
    listed = [f"- {count} cells: {line}" for line, count in sorted(lines.items())]
    return "\n".join(listed)


def _peers(name: str) -> list[Peer]:
    return [row for row in ROWS.values() if isinstance(row, Peer) and row.of == name]


def _stale(row: Row, cells: Mapping[int, Content]) -> bool:
    try:
        return any(changes(Cell(row, seed)) for seed in cells)
    except BorderError:  # the row can no longer be composed
        return True


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return f"{table(head, lines)}\n"


def _score(cells: Mapping[int, Content], model: str) -> str:
    """Formats returns and, if the environment reports it, the success rate."""
    success = success_over_seeds(cells, model)
    text = _pm(over_seeds(cells, model))
    return f"{text} (success {success.mean:.2f})" if success else text


def _pm(scores: Spread | None) -> str:
    return f"{scores.mean:.1f} ± {scores.std:.1f}" if scores else NOTHING


def _mean(cells: Mapping[int, Content], name: str) -> str:
    values = [cell[name] for cell in cells.values()]
    return f"{spread(values).mean:,.0f}" if values else NOTHING


def _duration(seconds: Sequence[float]) -> str:
    if not seconds:
        return NOTHING
    mean_s = spread(seconds).mean
    return f"{mean_s:.1f} s" if mean_s < 100 else f"{mean_s / 60:.0f} min"
