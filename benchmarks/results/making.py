"""Runs the commands of a cell as a user types them, and collects their results."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.isolated import command
from benchmarks.machine import Others, facts
from benchmarks.results.cells import Content, commit, read, write
from benchmarks.results.children import Children, Ended
from benchmarks.results.kinds import Cell, Peer, Recording, Row, Run
from benchmarks.results.rows import ROWS, recording_of
from benchmarks.results.settings import (
    compose_row,
    judging_seed,
    peer_settings,
    peer_task,
    settings_of,
    values,
)
from benchmarks.results.versions import read_versions, versions_of
from border_cli.recorder.read import read_metrics
from border_cli.run.status import read_run

COMMANDS = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
EPISODES = 100  # fresh episodes that judge a model
NEEDED = {row.needs for row in ROWS.values()}


@dataclass(frozen=True, slots=True)
class Workshop:
    """The folder of runs and data sets; any number of threads may run cells in it."""

    folder: Path
    keep: bool  # including products that no other row needs
    jobs: int
    children: Children

    def product_of(self, row: Row, seed: int = 0) -> Path:
        """Returns the run directory or data set that a row produces for others."""
        if isinstance(row, Recording):
            return self.folder / "datasets" / row.dataset
        return self.folder / row.name / str(seed)

    def has(self, row: Row) -> bool:
        """Returns whether the product of a row exists and is complete."""
        product = self.product_of(row)
        if isinstance(row, Recording):
            return product.exists()  # a data set appears only once complete
        return read_run(product).get("status") == "done"

    def make(self, cell: Cell) -> Content:
        """Runs a cell and stores its result; raises Failed if a command fails, or Stopped."""
        row = cell.row
        code = {"commit": commit(), "versions": versions_of(row, read_versions())}
        settings = values(settings_of(row))  # all of these are those at the start
        shutil.rmtree(self.product_of(row, cell.seed), ignore_errors=True)
        with Others() as others:
            content = self._run_cell(cell)
        machine = {"jobs": self.jobs, "other_cores": round(others.cores, 2), **facts()}
        about = {"row": row.name, "seed": cell.seed}
        content = about | content | code | {"machine": machine, "settings": settings}
        write(cell, content)
        if not self.keep and row.name not in NEEDED:
            shutil.rmtree(self.product_of(row, cell.seed), ignore_errors=True)
        return content

    def _run_cell(self, cell: Cell) -> Content:
        match cell.row:
            case Run() as row:
                return self._train(row, cell.seed)
            case Recording() as row:
                return self._record(row)
            case Peer() as row:
                return self._train_peer(row, cell.seed)
        raise TypeError(f"there are no rows of {type(cell.row)}")

    def _train(self, row: Run, seed: int) -> Content:
        folder = self.product_of(row, seed)
        folder.parent.mkdir(parents=True, exist_ok=True)
        began_s = time.monotonic()
        words = ("border-train", *row.typed, f"seed={seed}", f"run_dir={folder}")
        cpu_s = self._call(row, seed, *words).cpu_s
        wall_s = time.monotonic() - began_s
        source = read(Cell(recording_of(row.recording), 0)) if row.recording else None
        run = read_run(folder)
        return {
            "command": f"border-train {' '.join(row.typed)} seed={seed}",
            "tuned": compose_row(row.typed).tuned,
            **({"data": {"checksum": source["checksum"]}} if source else {}),
            "judging_seed": judging_seed(seed),
            "best": self._evaluate(row, seed, "best"),
            "last": self._evaluate(row, seed, "latest"),
            **{name: run[name] for name in ("exit_reason", "best_opt_steps")},
            **{name: run[name] for name in ("env_steps", "opt_steps")},
            "wall_s": round(wall_s, 1),
            "cpu_s": round(cpu_s, 1),
            "curve": _curve(folder),
        }

    def _evaluate(self, row: Run, seed: int, checkpoint: str) -> Content:
        """Evaluates a checkpoint in fresh episodes with `border-eval`."""
        arguments = (f"checkpoint={checkpoint}", f"seed={judging_seed(seed)}")
        run_dir = str(self.product_of(row, seed))
        words = (run_dir, *arguments, f"episodes={EPISODES}", "--json")
        answer = _last_line(self._call(row, seed, "border-eval", *words))
        success = {"success": answer["is_success"]} if "is_success" in answer else {}
        return _spread(answer["returns"]) | success

    def _record(self, row: Recording) -> Content:
        words = (str(self.product_of(ROWS[row.run])), f"dataset={row.dataset}", *row.typed)
        began_s = time.monotonic()
        self._call(row, 0, "border-record", *words)
        wall_s = time.monotonic() - began_s
        answer = self._run_json(
            row, 0, command("benchmarks.results.recordings:facts", dataset=row.dataset)
        )
        return {
            "command": f"border-record RUN_DIR dataset={row.dataset} {' '.join(row.typed)}",
            "recorded": _spread(answer.pop("returns")),
            **answer,
            "wall_s": round(wall_s, 1),
        }

    def _train_peer(self, row: Peer, seed: int) -> Content:
        words = command(
            "benchmarks.results.peers:train",
            algorithm=row.algorithm,
            settings=peer_settings(row),
            **peer_task(row, seed),
            judging_episodes=EPISODES,
            began_at_s=time.time(),
        )
        answer = self._run_json(row, seed, words)
        judged = {name: _spread(answer.pop(name)) for name in ("best", "last")}
        curve = _rounded(answer.pop("curve"))
        times = {name: round(answer[name], 1) for name in ("wall_s", "cpu_s")}
        return judged | answer | times | {"curve": curve}

    def _run_json(self, row: Row, seed: int, words: Sequence[str]) -> Content:
        return _last_line(self._run_command(row, seed, words))

    def _call(self, row: Row, seed: int, name: str, *arguments: str) -> Ended:
        return self._run_command(row, seed, [str(COMMANDS / name), *arguments])

    def _run_command(self, row: Row, seed: int, words: Sequence[str]) -> Ended:
        paths = {"MINARI_DATASETS_PATH": str(self.folder / "datasets"), "PYTHONPATH": str(ROOT)}
        log = self.folder / f"{row.name}-{seed}.log"
        variables = {**os.environ, **paths}
        return self.children.run(words, folder=self.folder, log=log, variables=variables)


def _last_line(process: Ended) -> Content:
    content: Content = json.loads(process.output.splitlines()[-1])
    return content


def _spread(returns: Sequence[float]) -> Content:
    """Summarizes returns; `std` is the population standard deviation, as in `border-eval`."""
    figures: dict[str, float] = {
        "mean": statistics.fmean(returns),
        "std": statistics.pstdev(returns),
        "min": min(returns),
        "max": max(returns),
    }
    return {name: round(value, 3) for name, value in figures.items()} | {"episodes": len(returns)}


def _curve(run_dir: Path) -> dict[str, list[Any]]:
    """Returns the evaluations of a run, in order."""
    rows = [row for row in read_metrics(run_dir / "metrics.jsonl") if "eval/return" in row]
    names = {"env_steps": "env_steps", "opt_steps": "opt_steps", "returns": "eval/return"}
    return _rounded({name: [row[key] for row in rows] for name, key in names.items()})


def _rounded(curve: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**curve, "returns": [round(value, 2) for value in curve["returns"]]}
