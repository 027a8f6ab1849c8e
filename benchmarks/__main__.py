"""The whole table, one line of JSON per row.

    python -m benchmarks            a quarter of an hour on two busy cores
    python -m benchmarks --quick    one repetition of everything, to see that it works

Its parts run alone as well, with settings of their own (`--help`):

    python -m benchmarks.learner      updates/s inside a full run, against bare torch loops
    python -m benchmarks.prioritized  microseconds of prioritized replay, against a binary tree
    python -m benchmarks.solve        seconds from Enter to solved

Each part is a process of its own, so that none inherits the threads or caches of another. Leave
the machine alone meanwhile: every row says what the load was.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PARTS: dict[str, list[str]] = {  # module -> its arguments under --quick
    "learner": ["--repetitions", "1", "--updates", "1000"],
    "prioritized": ["--repeats", "1000"],
    "solve": ["--seeds", "0"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one repetition of everything")
    quick = parser.parse_args().quick
    for name, arguments in PARTS.items():
        command = [sys.executable, "-m", f"benchmarks.{name}", *(arguments if quick else [])]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
