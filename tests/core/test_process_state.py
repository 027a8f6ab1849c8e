"""What somebody else's code changes of this process is put back, and said once."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import locale
import logging
import logging.config
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from border_cli.core.process_state import everything, keeping_everything, unchanged
from border_cli.core.threads import blas_threads, set_blas_threads

Log = pytest.LogCaptureFixture
LIBC: Any = ctypes.CDLL(None)


def state() -> list[Any]:
    """All that is kept, as it is now."""
    return [kind.read() for kind in everything()]


@pytest.fixture
def as_it_was() -> Iterator[None]:
    """Fails where the test leaves anything changed."""
    before = state()
    yield
    assert state() == before


def ignore(signum: signal.Signals) -> None:
    signal.signal(signum, signal.SIG_IGN)


def ignore_in_c(signum: signal.Signals) -> None:
    LIBC.signal(int(signum), ctypes.c_void_p(1))


def take_the_streams() -> None:
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()


def set_up_the_log() -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})


def toggle_faulthandler() -> None:
    if faulthandler.is_enabled():
        faulthandler.disable()
    else:
        faulthandler.enable(sys.__stderr__)


PIPE = os.pipe()
os.set_blocking(PIPE[1], False)

CHANGES: dict[str, Callable[[], object]] = {
    "the current directory": lambda: os.chdir("/"),
    "the handler of SIGINT": lambda: ignore(signal.SIGINT),
    "the handler of SIGUSR2": lambda: ignore(signal.SIGUSR2),
    "the handler of SIGTERM": lambda: ignore_in_c(signal.SIGTERM),
    "signal.set_wakeup_fd": lambda: signal.set_wakeup_fd(PIPE[1], warn_on_full_buffer=False),
    "sys.stdout": take_the_streams,
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "threading.excepthook": lambda: setattr(threading, "excepthook", print),
    "the root logger": set_up_the_log,
    "the warning filters": lambda: warnings.simplefilter("ignore"),
    "numpy's error handling": lambda: np.seterr(all="raise"),
    "torch's number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 3),
    "the locale": lambda: locale.setlocale(
        locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8"
    ),
    "faulthandler": toggle_faulthandler,
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.usefixtures("as_it_was")
def test_what_is_changed_is_put_back_and_said_once(what: str, caplog: Log) -> None:
    before = state()
    with keeping_everything():
        for _ in range(2):
            with unchanged("env.id=X"):
                CHANGES[what]()
                assert state() != before
            assert state() == before
    message = f"env.id=X changed {what}; it was restored"
    assert [each.getMessage() for each in caplog.records].count(message) == 1


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.skipif(blas_threads() is None, reason="numpy's BLAS here does not say")
def test_the_threads_of_numpys_blas_are_put_back(caplog: Log) -> None:
    threads = blas_threads()
    assert threads is not None
    with keeping_everything(), unchanged("env.id=X"):
        set_blas_threads(threads % 2 + 1)
        assert blas_threads() == threads % 2 + 1
    assert blas_threads() == threads
    assert "the number of threads of numpy's BLAS" in caplog.text


@pytest.mark.usefixtures("as_it_was")
def test_what_c_code_does_to_ctrl_c_in_a_thread_is_put_back(caplog: Log) -> None:
    def build() -> None:
        with unchanged("env.id=X"):
            ignore_in_c(signal.SIGINT)

    with keeping_everything():
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert "env.id=X changed the handler of SIGINT; it was restored" in caplog.text


@pytest.mark.usefixtures("as_it_was")
def test_our_loggers_speak_again_after_a_set_up_that_disabled_them(caplog: Log) -> None:
    with keeping_everything(), unchanged("env.id=X"):
        set_up_the_log()
        assert logging.getLogger("border_cli.core.process_state").disabled
    assert not logging.getLogger("border_cli.core.process_state").disabled
    assert "env.id=X changed the root logger; it was restored" in caplog.text


@pytest.mark.usefixtures("as_it_was")
def test_what_raises_is_put_back_too() -> None:
    def build() -> None:
        ignore(signal.SIGINT)
        raise RuntimeError("no licence")

    with (
        keeping_everything(),
        pytest.raises(RuntimeError, match="no licence"),
        unchanged("env.id=X"),
    ):
        build()


def test_a_folder_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path)
    os.chdir("gone")
    with unchanged("env.id=X"):
        os.chdir(tmp_path)
        (tmp_path / "gone").rmdir()
    assert "changed the current directory, which cannot be restored: [Errno 2]" in caplog.text


def test_the_panel_may_come_and_go_meanwhile(caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy(io.StringIO):
        """As rich puts one in front of the streams while it draws."""

        rich_proxied_file = sys.stdout

    panel = Proxy()
    with keeping_everything():
        with unchanged("env.id=X"):
            monkeypatch.setattr(sys, "stdout", panel)
        assert sys.stdout is panel
    assert caplog.text == ""


def test_a_python_caller_keeps_its_own_state_but_for_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # put back in the end
    with unchanged("env.id=X"):
        os.chdir("/")
        sys.excepthook = print
    assert Path.cwd() == tmp_path
    assert sys.excepthook is print
    assert "sys.excepthook" not in caplog.text
