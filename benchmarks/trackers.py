"""What a tracker costs the learner: updates/s with and without it, in turns.

    python -m benchmarks.trackers [--repetitions 5] [--updates 30000]

Each measurement is a whole `border-train agent=dqn env=cartpole`, synchronous and with thread
actors, that records as it does by default; the rate is that of `run.json`, from the first update to
the end of training. `cpu_s` is the processor time of all its processes.
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

NONE = "none"
TRACKERS = (NONE, "mlflow", "wandb", "trackio")
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
    return {
        "updates_per_s": facts["opt_steps"] / facts["duration_s"],
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--updates", type=int, default=30_000)
    arguments = made.parse_args()
    for trainer in TRAINERS:
        contenders = {each: partial(measure, trainer, each, arguments.updates) for each in TRACKERS}
        readings = take_turns(contenders, arguments.repetitions)
        rates = {each: column(found, "updates_per_s") for each, found in readings.items()}
        line: dict[str, Any] = {
            f"{each}_to_none": ratios(rates[each], rates[NONE]) for each in TRACKERS[1:]
        }
        emit("trackers", trainer, line | {each: summary(readings[each]) for each in TRACKERS})


if __name__ == "__main__":
    main()
