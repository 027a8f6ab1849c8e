"""Prints what the resumed run had, and writes the curves of both runs: WHOLE RESUMED."""

import json
import sys
from pathlib import Path

import numpy as np

whole, cut = (Path(name) for name in sys.argv[1:])
START = json.loads((cut / "checkpoints" / "0000002000" / "state.json").read_text())
CAPACITY = 100_000


def rows_of(run):
    with (run / "metrics.jsonl").open() as file:
        return [json.loads(line) for line in file]


def arrays_of(run, step):
    with np.load(run / "checkpoints" / step / "agent.npz") as arrays:
        return {name: arrays[name] for name in arrays.files if name != "state.json"}


def agree(step):
    ours, theirs = arrays_of(whole, step), arrays_of(cut, step)
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


resumed = (row for row in rows_of(cut) if row["opt_steps"] > 2000)
later = next(row for row in resumed if "async/buffer_fill" in row)
pushed = later["async/buffer_fill"] * CAPACITY
new = later["async/samples_total"] - START["samples_total"]
print(f"fact buffer: {pushed - new:.0f} of {START['samples_total']} rows")
print(
    f"fact optimiser: Adam's moments at update 4000 {'equal' if agree('0000004000') else 'differ'}"
)
same = next(row for row in rows_of(whole) if row["opt_steps"] == later["opt_steps"])
epsilons = (later["train/epsilon"], same["train/epsilon"])
print("fact schedule: epsilon {:.2f}, undivided {:.2f}".format(*epsilons))
first = later["env_steps"] - new
print(f"fact counters: step {first:.0f} of {START['env_steps']}")
print(f"fact same result: {'yes, to the bit' if agree('latest') else 'no'}")
with Path("curve.csv").open("w") as out:
    for name, run in (("undivided", whole), ("resumed", cut)):
        for row in rows_of(run):
            if "episode/return" in row:
                print(
                    "border_cli", name, row["env_steps"], row["episode/return"], sep=",", file=out
                )
