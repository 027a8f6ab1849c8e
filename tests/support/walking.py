"""Writes down which files of border_cli a command enters, in the order of their first calls.

A process that imports this module with `WALK` in its environment is followed: to the file `WALK`
it appends a line `PID|THREAD|PATH` for every file that a thread enters for the first time, and a
line `PID|THREAD|CALLER>PATH` for every file that another file of ours calls for the first time.
It begins with the first call of `WALK_BEGIN` (`file.py:function`; at once without it) in any thread
of the process, and ends with the first call of `WALK_END`.
"""

from __future__ import annotations

import os
import sys
import threading
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

BELOW = f"{os.sep}border_cli{os.sep}"


def ours(code: CodeType) -> str | None:
    """The path below border_cli/; of functions, not of modules and classes that are being made."""
    _, below, path = code.co_filename.rpartition(BELOW)
    if not below or code.co_name == "<module>" or not code.co_flags & CO_OPTIMIZED:
        return None
    return path


def caller(frame: FrameType) -> str | None:
    """The nearest file of ours that led here, past those of others."""
    before = frame.f_back
    while before is not None:
        if path := ours(before.f_code):
            return path
        before = before.f_back
    return None


class Walk:
    def __init__(self, out: str, begin: str, end: str) -> None:
        self._out = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._begin, self._end = begin, end
        self._begun, self._ended = not begin, False
        self._seen: set[str] = set()

    def called(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event != "call" or self._ended or (path := ours(frame.f_code)) is None:
            return
        call = f"{path}:{frame.f_code.co_name}"
        self._begun = self._begun or call == self._begin
        self._ended = call == self._end
        if not self._begun:
            return
        self._write(path)
        before = caller(frame)
        if before not in (None, path):
            self._write(f"{before}>{path}")

    def _write(self, what: str) -> None:
        line = f"{os.getpid()}|{threading.current_thread().name}|{what}\n"
        if line not in self._seen:
            self._seen.add(line)
            os.write(self._out, line.encode())


if "WALK" in os.environ:
    walk = Walk(os.environ["WALK"], os.environ.get("WALK_BEGIN", ""), os.environ.get("WALK_END", ""))
    threading.setprofile(walk.called)
    sys.setprofile(walk.called)
