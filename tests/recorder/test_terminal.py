"""The console of a run: log lines, the table of times, and a closed stdout."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from border_cli.recorder.terminal import ConsoleHandler, make_console, time_tree

LONG_PATH = "/home/[somebody]/" + "a-folder/" * 20 + ":smile: 12"


def pipe(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, _environ={})


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_time_tree_shows_the_largest_first_and_leaves_out_what_took_none() -> None:
    console = pipe()
    learner = {"wait": 1.0, "update": 6.0, "priorities": 0.0, "evaluate": 1.001}
    time_tree(console, learner, {"act": 3.0, "env_step": 5.0}, {"saving": 0.4})
    rows = [line.rstrip() for line in lines(console) if line.strip()]
    assert rows[2:] == [
        "    6.00   75.0 %   learner: update",
        "    1.00   12.5 %   learner: evaluate",
        "    1.00   12.5 %   learner: receive samples",
        "    5.00   62.5 %   actors: env step",
        "    3.00   37.5 %   actors: act",
        "    0.40    5.0 %   meanwhile: saving",
    ]


def logger_on(console: Console) -> logging.Logger:
    logger = logging.Logger("test")
    logger.addHandler(ConsoleHandler(console))
    return logger


def test_a_log_line_has_time_and_message_and_is_never_wrapped() -> None:
    console = pipe(width=30)
    logger_on(console).info("saved %s", LONG_PATH)
    (line,) = lines(console)
    assert line[0] == "["
    assert line[3] == line[6] == ":"
    assert line[9:] == f"] saved {LONG_PATH}"


def test_warnings_and_other_threads_are_named() -> None:
    console = pipe()
    logger = logger_on(console)
    thread = threading.Thread(target=logger.warning, args=("slow",), name="actor-3")
    thread.start()
    thread.join()
    logger.error("bad")
    first, second = lines(console)
    assert first.endswith("] actor-3: warning: slow")
    assert second.endswith("] error: bad")


def test_a_console_without_a_terminal_is_never_interactive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not make_console().is_interactive


def test_a_reader_that_goes_away_ends_neither_the_run_nor_its_exit_status() -> None:
    code = (
        "import sys\n"
        "from border_cli.recorder.terminal import make_console, say\n"
        "console = make_console()\n"
        "sys.stdin.read()\n"  # until the test has closed the other end of stdout
        "for _ in range(3):\n"
        "    say(console, 'hello')\n"
        "print('unread')\n"
        "sys.stderr.write('continued')\n"
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    os.close(reader)
    _, errors = process.communicate("", timeout=30)
    assert process.returncode == 0
    assert errors == "the output was closed; nothing more is printed\ncontinued"
