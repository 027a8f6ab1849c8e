"""Plants faults in the package one by one: whether the test suite still catches each of them.

    python -m benchmarks.faults [--only TEXT] > faults.jsonl

benchmarks/faults.txt lists the faults: small plausible mistakes, over all rooms, in lines that
express an algorithm or a promise. Each is planted by itself in the working tree, the tests named
for it run, and the file is put back. It is caught where a test fails, missed where all pass, and a
`timeout` where they take longer than `--timeout-s`, which is as good as caught only where its name
begins with "hang:". What is not in the file named any more is looked for in the whole package, so
that code may move; a fault whose line was rewritten is `not planted`, and its entry needs the new
line. The exit status is 0 if all were caught.

Before tests are deleted or merged, and after: the tests named may be others then, but the faults
stay. `--without` runs the tests without the faults. A quarter of an hour on a busy core.
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
PLACES = ("border_cli", "conf")  # where faults are planted
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class Fault(NamedTuple):
    """One entry of the list."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def read(text: str) -> Iterator[Fault]:
    """The faults of a list, whose first lines describe its form."""
    for block in text.split("\n\n"):
        lines = [each for each in block.splitlines() if each and not each.startswith("#")]
        if lines:
            name, file, *changes, tests = lines
            old, new = ("\n".join(each[2:] for each in changes if each[0] == sign) for sign in "-+")
            yield Fault(name, file, old, new, tests.split())


def find(fault: Fault) -> Path | None:
    """The file whose text has the old one exactly once: the one named, or else any."""
    named = ROOT / fault.file
    if named.is_file() and (count := named.read_text(encoding="utf-8").count(fault.old)):
        return named if count == 1 else None
    files = [each for place in PLACES for each in (ROOT / place).rglob("*.*")]
    texts = {each: each.read_text("utf-8") for each in files if each.suffix in (".py", ".yaml")}
    counts = {each: text.count(fault.old) for each, text in texts.items() if fault.old in text}
    return next(iter(counts)) if list(counts.values()) == [1] else None


@contextmanager
def planted(path: Path, fault: Fault) -> Iterator[None]:
    """The file has the fault meanwhile."""
    text, times = path.read_text(encoding="utf-8"), path.stat()
    try:
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        yield
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # its bytecode is valid again


def run(tests: Sequence[str], timeout_s: float) -> tuple[str, str]:
    """Whether tests fail, and the first that does."""
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
    if process.returncode in (2, 3, 4, 5):  # pytest's own; it may have been killed, or hang
        return "not run", "".join(failures[:1] or output.splitlines()[-1:])
    return ("caught", failures[0]) if failures else ("timeout", "")


def outcome(fault: Fault, timeout_s: float) -> dict[str, str]:
    """One line of the report."""
    path, found, first = find(fault), "not planted", ""
    hangs = fault.name.startswith("hang:")
    options = ["-o", "faulthandler_timeout=30"] if hangs else []  # s; a hang is waited for
    if path is not None:
        with planted(path, fault):
            found, first = run([*options, *fault.tests], timeout_s)
    if found == "timeout" and hangs:
        found = "caught"
    file = fault.file if path is None else str(path.relative_to(ROOT))
    return {"name": fault.name, "file": file, "outcome": found, "first": first}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose entry has TEXT")
    parser.add_argument("--timeout-s", type=float, default=300, help="per fault (default: 300)")
    parser.add_argument("--without", action="store_true", help="run the tests without the faults")
    arguments = parser.parse_args()
    every = read(LIST.read_text(encoding="utf-8"))
    faults = [each for each in every if arguments.only in "\n".join(map(str, each))]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
    if arguments.without:
        tests = sorted({test for fault in faults for test in fault.tests})
        sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-q", *tests], cwd=ROOT))
    if subprocess.check_output(["git", "status", "--porcelain", "--", *PLACES], cwd=ROOT):
        sys.exit("border_cli/ or conf/ has uncommitted changes: commit or stash them first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # puts the file back
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
