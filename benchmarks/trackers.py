"""What a tracker costs the learner: updates/s with and without it, in turns.

    python -m benchmarks.trackers [--repetitions 5] [--updates 30000]

Each measurement is a whole `border-train agent=dqn env=cartpole`, synchronous or with actor
threads, that records as it does by default. `whole_per_s` is the rate of `run.json`, in which the
process that delivers imports the package; `updates_per_s` that of the second half of the updates.
`cpu_s` is the processor time of all processes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.table import Reading, column, emit, parser, ratios, summary, take_turns
from border_cli.recorder.read import read_metrics

NONE = "none"
TRACKERS = ("mlflow", "wandb", "trackio")
TRAINERS = ("sync", "async")


def measure(trainer: str, tracker: str, updates: int, seed: int) -> Reading:
    """A run of so many updates."""
    recorders = ["tensorboard", "jsonl", *([] if tracker == NONE else [tracker])]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [
                *(sys.executable, "-m", "border_cli", "agent=dqn", "env=cartpole", "run_dir=run"),
                *(f"trainer={trainer}", f"trainer.max_opt_steps={updates}", f"seed={seed}"),
                *(f"recorder=[{','.join(recorders)}]", "quiet=true", "evaluator.background=false"),
                "trainer.eval_interval=1000000",
            ],
            cwd=folder,
            env={**os.environ, "TRACKIO_DIR": f"{folder}/trackio", "WANDB_MODE": "offline"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        facts: dict[str, Any] = json.loads(Path(folder, "run/run.json").read_text())
        rows = read_metrics(Path(folder, "run/metrics.jsonl"))
    half = next(row for row in rows if row["opt_steps"] >= updates / 2)
    steps, seconds = (rows[-1][each] - half[each] for each in ("opt_steps", "time_s"))
    return {
        "updates_per_s": steps / seconds,
        "whole_per_s": facts["opt_steps"] / facts["duration_s"],
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--updates", type=int, default=30_000)
    made.add_argument("--trainers", nargs="+", choices=TRAINERS, default=TRAINERS)
    made.add_argument("--trackers", nargs="+", choices=TRACKERS, default=TRACKERS)
    arguments = made.parse_args()
    for trainer in arguments.trainers:
        contenders = {
            each: partial(measure, trainer, each, arguments.updates)
            for each in (NONE, *arguments.trackers)
        }
        readings = take_turns(contenders, arguments.repetitions)
        rates = {each: column(found, "updates_per_s") for each, found in readings.items()}
        line: dict[str, Any] = {
            f"{each}_to_none": ratios(rates[each], rates[NONE]) for each in arguments.trackers
        }
        emit("trackers", trainer, line | {each: summary(found) for each, found in readings.items()})


if __name__ == "__main__":
    main()
