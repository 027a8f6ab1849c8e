"""Runs a measurement in its own process, so that it inherits no threads, caches or memory.

    python -m benchmarks.isolated benchmarks.bare_actor:measure '{"seconds": 3.0}'

This calls the function and prints its return value as JSON on the last line of standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib import import_module
from typing import IO, Any

from benchmarks.table import Reading

TIMEOUT_S = 900.0  # far more than any measurement takes


def command(target: str, **arguments: Any) -> list[str]:
    """Returns the command that calls `target`, a `module:function`, in a new process."""
    return [sys.executable, "-m", "benchmarks.isolated", target, json.dumps(arguments)]


def call(target: str, **arguments: Any) -> Any:
    """Returns the function's result from a new process; raises CalledProcessError if it fails."""
    process = subprocess.run(
        command(target, **arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return json.loads(process.stdout.splitlines()[-1])


def since_enter(target: str, **arguments: Any) -> Reading:
    """Calls the function; converts its wall-clock times (`…_at_s`) to seconds since the start."""
    began_s = time.time()
    answer: Reading = call(target, **arguments)
    return {
        name.replace("_at_s", "_s"): value - began_s if name.endswith("_at_s") else value
        for name, value in answer.items()
    }


class Beside:
    """Runs a function in another process during a `with` block, which starts once it is ready.

    Closing its standard input ends the function; `answer` is its return value.
    """

    def __init__(self, target: str, **arguments: Any) -> None:
        self._command = command(target, **arguments)
        self.answer: Any = None

    def __enter__(self) -> Beside:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = _piped(self._process.stdout).readline()
        if line != "ready\n":
            raise RuntimeError(f"{self._command} is not ready: {line!r}")
        return self

    def __exit__(self, *exc: object) -> None:
        output, _ = self._process.communicate()  # closes its standard input
        if self._process.returncode:
            raise subprocess.CalledProcessError(self._process.returncode, self._command)
        self.answer = json.loads(output.splitlines()[-1])


def _piped(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main() -> None:
    target, arguments = sys.argv[1:]
    module, _, function = target.partition(":")
    answer = getattr(import_module(module), function)(**json.loads(arguments))
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
