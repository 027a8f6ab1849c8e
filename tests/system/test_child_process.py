"""Child processes: messages to and from the parent, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import pytest

from border_cli.system.child import Pipe
from border_cli.system.child_process import ChildProcess
from border_cli.system.start import StartMethod, start_context

LOUD = 5_000  # messages


def greet(name: str, pipe: Pipe) -> None:
    pipe.send("greeting", f"hello {name}", 3)


def echo(pipe: Pipe) -> None:
    pipe.send("heard", pipe.receive())


def fail(_pipe: Pipe) -> None:
    raise RuntimeError("the child broke")


def leave(status: int, _pipe: Pipe) -> None:
    os._exit(status)


def die(signum: int, _pipe: Pipe) -> None:
    os.kill(os.getpid(), signum)


def shout_together(pipe: Pipe) -> None:
    """Sends messages and logs from several threads at once, then fails."""

    def shout(number: int) -> None:
        for index in range(LOUD // 5):
            pipe.send("shout", number, index, "x" * 300)
            logging.getLogger("shouts").debug("not logged")

    threads = [threading.Thread(target=shout, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    raise RuntimeError("hoarse")


def log_on(_pipe: Pipe) -> None:
    while True:
        logging.getLogger("chatter").info("and on")


def sleep(pipe: Pipe) -> None:
    pipe.send("asleep")
    threading.Event().wait()


def close_its_output(_pipe: Pipe) -> None:
    sys.stdout.close()


@pytest.fixture
def start() -> Callable[..., ChildProcess]:
    context = start_context(StartMethod.auto, [])
    return lambda main, *args, nice=0: ChildProcess(context, "the child", main, *args, nice=nice)


def ended(child: ChildProcess) -> ChildProcess:
    """Receives from a child until it has exited; returns the child."""
    while child.alive:
        wait(child.waitables, 5)
        child.listen()
    return child


def test_what_it_says_arrives_and_its_end_is_no_failure(start: Callable[..., Any]) -> None:
    child = ended(start(greet, "you"))
    assert child.reap() is None
    assert list(child.inbox) == [("greeting", "hello you", 3)]


def test_it_hears_what_its_parent_says(start: Callable[..., Any]) -> None:
    child = start(echo)
    child.connection.send({"a": 1})
    assert ended(child).reap() is None
    assert list(child.inbox) == [("heard", {"a": 1})]


def test_its_failure_comes_with_its_traceback(start: Callable[..., Any]) -> None:
    why = ended(start(fail)).reap()
    assert why.startswith("Traceback")
    assert why.rstrip().endswith("RuntimeError: the child broke")


@pytest.mark.parametrize(
    ("main", "value", "why"),
    [
        (leave, 0, None),
        (leave, 7, "its process exited with status 7"),
        (die, signal.SIGKILL, r"its process was killed by SIGKILL (out of memory?)"),
        (die, signal.SIGRTMIN + 1, "its process was killed by signal 35"),
    ],
)
def test_an_end_without_a_word_is_told_by_its_status(
    start: Callable[..., Any], main: Callable[..., None], value: int, why: str | None
) -> None:
    reason = ended(start(main, int(value))).reap()
    assert reason == why or (why is not None and reason.startswith(why))


def test_a_fault_is_told_with_the_place(start: Callable[..., Any]) -> None:
    reason = ended(start(die, int(signal.SIGSEGV))).reap()
    assert reason.startswith("Fatal Python error: Segmentation fault\n")
    assert " in die\n" in reason
    assert reason.endswith("\nits process was killed by SIGSEGV")


def test_threads_that_speak_at_once_do_not_spoil_each_others_words(
    start: Callable[..., Any],
) -> None:
    child = ended(start(shout_together))
    assert "hoarse" in child.reap()
    assert len(child.inbox) == LOUD
    for number in range(5):
        assert [item[2] for item in child.inbox if item[1] == number] == list(range(LOUD // 5))


def test_one_that_never_stops_talking_does_not_keep_its_parent(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        child = start(log_on)
        wait(child.waitables, 30)
        child.listen()  # returns despite the endless log
        child.kill()
        assert "SIGKILL" in ended(child).reap()
    assert caplog.messages[0] == "the child: and on"


def test_the_stack_of_a_child_can_be_read_and_it_can_be_killed(start: Callable[..., Any]) -> None:
    child = start(sleep)
    while not child.inbox:
        wait(child.waitables, 5)
        child.listen()
    assert "in sleep" in child.stack()
    child.kill()
    assert "SIGKILL" in ended(child).reap()


def test_output_that_nobody_reads_any_more_is_no_failure(start: Callable[..., Any]) -> None:
    assert ended(start(close_its_output)).reap() is None
