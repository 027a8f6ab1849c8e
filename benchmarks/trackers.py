"""The cost of a tracker for the learner: recording, and the process that delivers to the tracker.

    python -m benchmarks.trackers [--repetitions 3] [--seconds 120]

Each measurement is a complete `border-train agent=dqn env=cartpole`, synchronous or with actor
threads, that records to tensorboard, jsonl and the tracker. Every `WINDOW_S` seconds, the
delivering process is stopped or continued. `delivering_to_stopped` is the ratio of the updates/s in
these two kinds of windows, within one run, so that fluctuations of the machine cancel out. A
stopped process catches up afterwards, so no work is left out. The package is imported before the
first window. `record_percent` is the percentage of the learner's time that all recorders take;
`none` is a run without a tracker. `delivery_percent` is the CPU time of the delivering process, as
a percentage of one core.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.table import Reading, emit, make_parser, summary, take_turns

NONE = "none"
TRACKERS = ("mlflow", "wandb", "trackio")
TRAINERS = ("sync", "async")
IMPORT_S = 20.0  # seconds to import the package and create the run
WINDOW_S = 1.0


def measure(trainer: str, tracker: str, seconds: float, seed: int) -> Reading:
    """Measures a run of `seconds` seconds."""
    recorders = ["tensorboard", "jsonl", *([] if tracker == NONE else [tracker])]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen(
            [
                *(sys.executable, "-m", "border_cli", "agent=dqn", "env=cartpole", "run_dir=run"),
                *(f"trainer={trainer}", f"trainer.max_time_s={seconds}", f"seed={seed}"),
                *("trainer.max_opt_steps=null", f"recorder=[{','.join(recorders)}]", "quiet=true"),
                *("evaluator.background=false", "trainer.eval_interval=1000000000"),
            ],
            cwd=folder,
            env={**os.environ, "TRACKIO_DIR": f"{folder}/trackio", "WANDB_MODE": "offline"},
            stdout=subprocess.DEVNULL,
        )
        outbox = Path(folder, f"run/trackers/{tracker}.jsonl")
        delivery = {} if tracker == NONE else _toggle_delivery(run, outbox, seconds)
        if run.wait() != 0:
            raise RuntimeError(f"{tracker}: the run failed")
        spent = json.loads(Path(folder, "run/run.json").read_text())["seconds"]["learner"]
    return {"record_percent": 100 * spent["record"] / sum(spent.values()), **delivery}


def _toggle_delivery(run: subprocess.Popen[bytes], outbox: Path, seconds: float) -> Reading:
    """Stops the delivering process in every second window; returns rates with and without it."""
    while not outbox.exists() or not outbox.stat().st_size:
        time.sleep(0.1)
    end_s = time.time() + seconds - WINDOW_S
    time.sleep(IMPORT_S)
    group = [process for process in psutil.Process(run.pid).children() if _is_delivery(process)]
    group += [child for parent in group for child in parent.children(recursive=True)]
    before_s, began_s, number = _cpu_s(group), time.time(), 0
    while (next_s := began_s + (number + 1) * WINDOW_S) < end_s:
        for process in group:
            process.send_signal(signal.SIGSTOP if number % 2 else signal.SIGCONT)
        time.sleep(max(0, next_s - time.time()))
        number += 1
    for process in group:
        process.send_signal(signal.SIGCONT)
    cpu_s = _cpu_s(group) - before_s
    events = [json.loads(line) for line in outbox.read_bytes().splitlines()]
    rows = [
        (event["at"], event["metrics"]["opt_steps"]) for event in events if event["kind"] == "row"
    ]
    updates, passed_s = [0, 0], [0.0, 0.0]  # in windows with delivery, without it
    for (first_s, first), (last_s, last) in pairwise(rows):
        window = int(((first_s + last_s) / 2 - began_s) // WINDOW_S)
        if 0 <= window < number:
            updates[window % 2] += last - first
            passed_s[window % 2] += last_s - first_s
    running, stopped = (done / over_s for done, over_s in zip(updates, passed_s, strict=True))
    return {
        "delivering_to_stopped": running / stopped,
        "updates_per_s": stopped,
        "delivery_percent": 100 * cpu_s / (number * WINDOW_S),
    }


def _is_delivery(process: psutil.Process) -> bool:
    return "border_cli.recorder.deliver" in process.cmdline()


def _cpu_s(group: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in group))


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--trainers", nargs="+", choices=TRAINERS, default=TRAINERS)
    parser.add_argument("--trackers", nargs="+", choices=TRACKERS, default=TRACKERS)
    arguments = parser.parse_args()
    for trainer in arguments.trainers:
        contenders = {
            tracker: partial(measure, trainer, tracker, arguments.seconds)
            for tracker in (NONE, *arguments.trackers)
        }
        readings = take_turns(contenders, arguments.repetitions)
        emit(
            "trackers",
            trainer,
            {tracker: summary(results) for tracker, results in readings.items()},
        )


if __name__ == "__main__":
    main()
