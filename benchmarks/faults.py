"""Plants faults in the package one at a time and checks that the test suite catches them.

    python -m benchmarks.faults [--only TEXT] > faults.jsonl

benchmarks/faults.txt lists the faults: small plausible mistakes in every part of the package, in
lines that express an algorithm or a guarantee. For each fault, the file in the working tree is
edited, the tests listed with the fault run, and the file is restored. A fault is `caught` if a test
fails, `missed` if all tests pass, and a `timeout` if they take longer than `--timeout-s`. A timeout
counts as caught only if the name of the fault begins with "hang:". If the listed file does not
contain the old text, the whole package is searched, so that code may move. A fault whose line was
rewritten is `not planted`, and its entry needs the new line. The exit status is 0 if all faults
were caught.

Run this before and after tests are deleted or merged: the listed tests may change, the faults stay.
`--without` runs the tests without the faults. It takes a quarter of an hour on a busy core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import say

ROOT = Path(__file__).parents[1]
LIST = ROOT / "benchmarks" / "faults.txt"
PLACES = ("border_cli", "conf")  # directories in which faults are planted
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Fault(NamedTuple):
    """One entry of the list."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read(text: str) -> Iterator[Fault]:
    """Yields the faults of a list."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            name, file, *changes, tests = lines
            old, new = ("\n".join(line[2:] for line in changes if line[0] == sign) for sign in "-+")
            yield Fault(name, file, old, new, tests.split())


def find(fault: Fault) -> Path | None:
    """Returns the file that contains the old text exactly once: the listed file or any other."""
    listed = ROOT / fault.file
    if listed.is_file() and (count := listed.read_text(encoding="utf-8").count(fault.old)):
        return listed if count == 1 else None
    files = [path for place in PLACES for path in (ROOT / place).rglob("*.*")]
    texts = {path: path.read_text("utf-8") for path in files if path.suffix in (".py", ".yaml")}
    counts = {path: text.count(fault.old) for path, text in texts.items() if fault.old in text}
    return next(iter(counts)) if list(counts.values()) == [1] else None


@contextmanager
def planted(path: Path, fault: Fault) -> Iterator[None]:
    """Plants the fault in a file for the duration of the block."""
    text, times = path.read_text(encoding="utf-8"), path.stat()
    try:
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # keeps its cached bytecode valid


def run(tests: Sequence[str], timeout_s: float) -> tuple[str, str]:
    """Runs tests; returns the outcome and the first failing test."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, start_new_session=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return "timeout", ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    failures = FAILED.findall(output)
    if process.returncode == 0:
        return "missed", ""
    if process.returncode in (2, 3, 4, 5):  # pytest's own errors; any other status may be a crash
        return "not run", "".join(failures[:1] or output.splitlines()[-1:])
    return ("caught", failures[0]) if failures else ("timeout", "")


def outcome(fault: Fault, timeout_s: float) -> dict[str, str]:
    """Plants a fault, runs its tests and returns a line of the report."""
    path, result, first = find(fault), "not planted", ""
    hangs = fault.name.startswith("hang:")
    options = ["-o", "faulthandler_timeout=30"] if hangs else []  # seconds until a hang fails
    if path is not None:
        with planted(path, fault):
            result, first = run([*options, *fault.tests], timeout_s)
    if result == "timeout" and hangs:
        result = "caught"
    file = fault.file if path is None else str(path.relative_to(ROOT))
    return {"name": fault.name, "file": file, "outcome": result, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only entries that contain TEXT")
    parser.add_argument(
        "--timeout-s", type=float, default=300, help="seconds per fault (default: 300)"
    )
    parser.add_argument("--without", action="store_true", help="run the tests without the faults")
    arguments = parser.parse_args()
    entries = read(LIST.read_text(encoding="utf-8"))
    faults = [entry for entry in entries if arguments.only in "\n".join(map(str, entry))]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores SIGINT
    if arguments.without:
        tests = sorted({test for fault in faults for test in fault.tests})
        sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT))
    if subprocess.check_output(["git", "status", "--porcelain", "--", *PLACES], cwd=ROOT):
        sys.exit("border_cli/ or conf/ has uncommitted changes: commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # restores the file
    counts: Counter[str] = Counter()
    for number, fault in enumerate(faults, 1):
        say(f"{number} of {len(faults)}: {fault.name}")
        line = outcome(fault, arguments.timeout_s)
        print(json.dumps(line), flush=True)
        counts[line["outcome"]] += 1
    print(json.dumps({"faults": len(faults), **counts}), flush=True)
    sys.exit(counts["caught"] != len(faults))


if __name__ == "__main__":
    main()
