"""Seconds from Enter to the first update, and from the last update back to the shell's prompt.

    python -m benchmarks.start [OVERRIDE …] [--repetitions 5]

`border_train` is `border-train agent=dqn env=cartpole trainer.record_interval=1
trainer.max_opt_steps=300`, otherwise with its defaults: the tuned values, all recorders,
checkpoints, evaluations. Every update then writes a row of metrics, and its TensorBoard event holds
the wall time just after the update, so the command itself is unchanged. `first_update_s` is the
first such time minus the start of the process. It is the sum of `before_run_s`, before the run's
own clock starts, and `run_s` (the warm-up of 500 samples). `shutdown_s` is the time from the row of
the last update to the end of the process: stopping the actors, the final evaluation, the final
checkpoint and the exit of the interpreter.

`bare` and `sb3` make the same 500 random steps and one update of [256, 256] at batch 64, timed from
the start of the process. `torch` imports torch and exits; `import_s` is the import alone. Each
measurement runs in its own process, with warm file caches; all contenders take turns.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.full_run import Setup, missing
from benchmarks.isolated import call, since_enter
from benchmarks.machine import installed
from benchmarks.table import (
    Reading,
    Readings,
    column,
    emit,
    make_parser,
    ratios,
    say,
    summary,
    take_turns,
)

COMMAND = Path(sys.executable).parent / "border-train"
TYPED = ["agent=dqn", "env=cartpole"]
UPDATES = 300
PROBE = ["trainer.record_interval=1", f"trainer.max_opt_steps={UPDATES}"]
WARM_UP = 500
FRAME = struct.Struct(
    "<Q4x"
)  # header of an event: length and checksum; a second checksum follows the event


def border_train(overrides: list[str], seed: int) -> Reading:
    """Times one run of the command."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        typed = [*TYPED, f"seed={seed}", f"run_dir={run_dir}", *PROBE, *overrides]
        began_s = time.time()
        subprocess.run([COMMAND, *typed], stdout=subprocess.DEVNULL, check=True)
        ended_s = time.time()
        first_s = _written_at_s(run_dir, 1)
        last_s = _written_at_s(run_dir, UPDATES)
        rows = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    run_s = next(row["time_s"] for row in map(json.loads, rows) if row["opt_steps"] == 1)
    return {
        "first_update_s": first_s - began_s,
        "before_run_s": first_s - began_s - run_s,
        "run_s": run_s,
        "shutdown_s": ended_s - last_s,
        "wall_s": ended_s - began_s,
    }


def _written_at_s(run_dir: Path, step: int) -> float:
    """Returns the wall time of the first event at this step."""
    (events,) = run_dir.glob("events.out.tfevents.*")
    return next(wall_s for at, wall_s in _events(events.read_bytes()) if at == step)


def _events(content: bytes) -> Iterator[tuple[int, float]]:
    """Yields step and wall time of every event in a TensorBoard file."""
    from tensorboard.compat.proto.event_pb2 import Event

    offset = 0
    while offset < len(content):
        (length,) = FRAME.unpack_from(content, offset)
        offset += FRAME.size
        event = Event.FromString(content[offset : offset + length])
        yield event.step, event.wall_time
        offset += length + 4


def _floor(module: str, seed: int) -> Reading:
    return since_enter(f"benchmarks.{module}:first_update", seed=seed, warm_up=WARM_UP)


def _torch(seed: int) -> Reading:
    del seed
    reading: Reading = call("benchmarks.machine:import_s", module="torch")
    return reading


def line(name: str, readings: Readings) -> dict[str, Any]:
    """Returns one row of the table."""
    content: dict[str, Any] = {}
    for other in ("bare", "sb3"):
        if name.startswith("border_train") and other in readings:
            pair = (column(readings[row], "first_update_s") for row in (name, other))
            content[f"first_update_to_{other}"] = ratios(*pair)
    return content | summary(readings[name])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("overrides", nargs="*", help="settings for border-train")
    arguments = parser.parse_args()
    overrides: list[str] = arguments.overrides
    contenders: dict[str, Callable[[int], Reading]] = {
        "torch": _torch,
        "bare": partial(_floor, "playing"),
        "border_train": partial(border_train, overrides),
    }
    if not missing(Setup(manager="process")):
        process = partial(border_train, ["actor_manager=process", *overrides])
        contenders["border_train_process"] = process
    if installed("stable-baselines3"):
        contenders["sb3"] = partial(_floor, "stable_baselines")
    else:
        say('skipped: sb3 (needs pip install "border-cli[bench]")')
    readings = take_turns(contenders, arguments.repetitions)
    for name in readings:
        emit("start", name, line(name, readings))


if __name__ == "__main__":
    main()
