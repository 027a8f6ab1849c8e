"""Appends returns of episodes to curve.csv: PANEL RUN MONITOR_FILE [OFFSET [LIMIT]]."""

import csv
import sys
from pathlib import Path

panel, run, path, *rest = sys.argv[1:]
offset = float(rest[0]) if rest else 0.0
limit = float(rest[1]) if rest[1:] else float("inf")
step = offset
with Path(path).open() as file, Path("curve.csv").open("a") as out:
    next(file)  # Monitor's first line describes the file
    for row in csv.DictReader(file):
        step += int(row["l"])
        if step <= limit:
            print(panel, run, step, row["r"], sep=",", file=out)
