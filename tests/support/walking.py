"""Writes down which functions of border_cli a command enters, in the order of their first calls.

A process that imports this module with `WALK` in its environment is followed: to the file `WALK`
it appends a line `PID|THREAD|PATH:FUNCTION` for every function that a thread enters for the first
time (as `Class.method`), and a line `PID|THREAD|CALLER -> PATH` for every file that another file of
ours calls for the first time.

A thread begins with a call of one of `WALK_BEGIN` (`file.py:function`, with spaces between), and
begins anew, with a line `PID|THREAD|`, at every other such call; but once one of `WALK_END` was
called, the next one ends it. Without `WALK_BEGIN` threads begin at once and `WALK_END` ends them.
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
    """The nearest file of ours that led here.

    Past those of others, and past the registry and core/, which call what they are given.
    """
    before = frame.f_back
    while before is not None:
        path = ours(before.f_code)
        if path and path != "registry.py" and not path.startswith("core/"):
            return path
        before = before.f_back
    return None


class Walk(threading.local):
    """One thread's way."""

    out: int
    begin: frozenset[str]
    end: frozenset[str]

    def __init__(self) -> None:
        self.begun = not self.begin
        self.last = self.ended = False
        self.seen: set[str] = set()

    def called(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event != "call" or self.ended or (path := ours(frame.f_code)) is None:
            return
        call = f"{path}:{frame.f_code.co_name}"
        if call in self.begin:
            self.ended = self.last
            self.begun = True
            self.seen.clear()
            if not self.ended:
                self.write("")
        self.last = self.last or (self.begun and call in self.end)
        self.ended = self.ended or (self.last and not self.begin)
        if not self.begun or self.ended:
            return
        self.write(f"{path}:{frame.f_code.co_qualname}")
        if (before := caller(frame)) not in (None, path):
            self.write(f"{before} -> {path}")

    def write(self, what: str) -> None:
        if what not in self.seen:
            self.seen.add(what)
            line = f"{os.getpid()}|{threading.current_thread().name}|{what}\n"
            os.write(self.out, line.encode())


if "WALK" in os.environ:
    Walk.out = os.open(os.environ["WALK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    Walk.begin = frozenset(os.environ.get("WALK_BEGIN", "").split())
    Walk.end = frozenset(os.environ.get("WALK_END", "").split())
    walk = Walk()
    threading.setprofile(walk.called)
    sys.setprofile(walk.called)
