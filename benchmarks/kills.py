"""Kills a run repeatedly and resumes it each time from its newest checkpoint.

    python -m benchmarks.kills [--kills 100] [--seed 0]

Runs `border-train env=cartpole` with a checkpoint every 300 updates, kills all its processes
(`kill -9`), resumes it with `resume=RUN_DIR`, and repeats. One third of the kills come at a random
moment, one third during a checkpoint, one third at a random moment right after the start. The
actor manager changes with every second attempt.

After each kill all files of the checkpoint that the next attempt loads are read and verified.
`lost` is the number of updates that must be repeated. Finally the run finishes, and its metrics
are checked: there must be exactly one row per `record_interval`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.table import emit, make_parser, say, spread
from border_cli.errors import CheckpointError
from border_cli.recorder.read import read_metrics
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_resumable
from border_cli.words import pluralize

INTERVAL = 300  # updates between checkpoints
RECORDED = 50  # updates between rows of metrics
MANAGERS = ("thread", "process", "serial")
SETTINGS = [
    "agent=dqn", "env=cartpole", "replay_buffer=prioritized", "trainer.max_opt_steps=1000000",
    f"trainer.save_interval={INTERVAL}", f"trainer.record_interval={RECORDED}",
    "trainer.eval_interval=1000", "trainer.stop_at_score=null", "replay_buffer.capacity=20000",
]  # fmt: skip
START_S, LEARN_S = 2.5, 3.0  # longest time to start, longest time to learn
PATIENCE_S = 60.0


def newest(run_dir: Path) -> int | None:
    """Reads and verifies the checkpoint that a resume would load; returns its opt steps."""
    for folder in find_resumable(run_dir):
        return read_checkpoint(folder).opt_steps
    return None


def last_opt_step(run_dir: Path) -> int:
    """Returns the last opt step in the metrics."""
    path = run_dir / "metrics.jsonl"
    rows = read_metrics(path) if path.is_file() else []
    return max((int(row["opt_steps"]) for row in rows), default=0)


def wait_for_save(run_dir: Path, until_s: float) -> bool:
    """Waits until a checkpoint or its transitions are partly written; returns False on timeout."""
    checkpoints = run_dir / "checkpoints"
    while time.monotonic() < until_s:
        for folder in (checkpoints, checkpoints / "replay"):
            if any(folder.glob(".*")):
                return True
    return False


class Attempt:
    """One process of the run and its children."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        command = [sys.executable, "-m", "border_cli", *arguments]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> bool:
        """Kills the whole process group; returns whether it was still running."""
        if self.process.poll() is not None:
            return False
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        return True


def run(kills: int, seed: int) -> dict[str, Any]:
    """Kills and resumes one run, and returns its results."""
    rng = random.Random(seed)
    lost: list[float] = []
    moments: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        run_dir, log = Path(folder) / "run", Path(folder) / "log"
        best = 0
        for number in range(kills):
            arguments = [*SETTINGS, f"run_dir={run_dir}"]
            if (run_dir / "run.json").exists():
                manager = MANAGERS[number // 2 % len(MANAGERS)]
                arguments = [f"resume={run_dir}", f"actor_manager={manager}"]
            attempt = Attempt(arguments, log)
            kind = ("random", "saving", "start")[number % 3]
            now_s = time.monotonic()
            if kind == "start":
                time.sleep(rng.uniform(0.05, START_S))
            else:
                time.sleep(START_S + rng.uniform(0.0, LEARN_S))
            if kind == "saving" and not wait_for_save(run_dir, now_s + PATIENCE_S):
                raise RuntimeError(
                    f"attempt {number} wrote no checkpoint:\n{log.read_text()[-3000:]}"
                )
            if not attempt.kill():
                raise RuntimeError(
                    f"attempt {number} exited before the kill:\n{log.read_text()[-3000:]}"
                )
            moments[kind] += 1
            checkpoint = newest(run_dir) or 0
            if checkpoint < best:
                raise CheckpointError(
                    f"attempt {number}: the newest checkpoint is {checkpoint}, but was {best}"
                )
            best = checkpoint
            lost.append(max(0, last_opt_step(run_dir) - checkpoint))
            updates = pluralize(round(lost[-1]), "update")
            say(f"kill {number + 1} ({kind}): checkpoint {checkpoint}, {updates} lost")
        end = best + 4 * INTERVAL
        process = subprocess.run(
            [sys.executable, "-m", "border_cli", f"resume={run_dir}",
             f"trainer.max_opt_steps={end}"],
            capture_output=True, text=True, timeout=10 * PATIENCE_S, check=False,
        )  # fmt: skip
        if process.returncode:
            raise RuntimeError(f"the last attempt failed:\n{process.stdout}{process.stderr}")
        *rows, _ = read_metrics(run_dir / "metrics.jsonl")  # the end of a run adds a row
        steps = [row["opt_steps"] for row in rows]
        expected = list(range(RECORDED, end + 1, RECORDED))
        if steps != expected:
            raise RuntimeError(
                f"metrics rows are missing or duplicated: {set(steps) ^ set(expected)}"
            )
    return {
        "kills": kills, "moments": dict(moments), "updates": end, "interval": INTERVAL,
        "lost": spread(lost),
    }  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__, repetitions=1)
    parser.add_argument("--kills", type=int, default=100, help="number of kills (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times (default: 0)")
    arguments = parser.parse_args()
    emit("kills", "cartpole", run(arguments.kills, arguments.seed))


if __name__ == "__main__":
    main()
