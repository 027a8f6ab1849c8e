"""What somebody else's code changes of this process is put back, and said once."""

from __future__ import annotations

import logging
import logging.config
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from border_cli.core.process_state import unchanged

Log = pytest.LogCaptureFixture


def state() -> list[Any]:
    """All that is kept, as it is now."""
    root = logging.getLogger()
    handlers = [signal.getsignal(each) for each in signal.valid_signals()]
    ours = logging.getLogger("border_cli.core.process_state").disabled
    return [Path.cwd(), handlers, list(root.handlers), root.level, root.manager.disable, ours]


@pytest.fixture
def as_it_was() -> Iterator[None]:
    """Fails where the test leaves anything changed."""
    before = state()
    yield
    assert state() == before


def ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def set_up_the_log() -> None:
    logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})


CHANGES: dict[str, tuple[str, Callable[[], object]]] = {
    "a folder": ("the current directory", lambda: os.chdir("/")),
    "Ctrl-C": ("the handler of SIGINT", ignore_ctrl_c),
    "the whole log": ("the root logger", set_up_the_log),
    "silence": ("the root logger", lambda: logging.disable(logging.CRITICAL)),
    "handlers": ("the root logger", lambda: logging.basicConfig(force=True)),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.usefixtures("as_it_was")
def test_what_is_changed_is_put_back_and_said_once(name: str, caplog: Log) -> None:
    what, change = CHANGES[name]
    before = state()
    for _ in range(2):
        with unchanged(f"env.id={name}"):
            change()
            assert state() != before
        assert state() == before
    assert caplog.messages == [f"env.id={name} changed {what}; it was restored"]


@pytest.mark.usefixtures("as_it_was")
def test_what_raises_is_put_back_too() -> None:
    def build() -> None:
        ignore_ctrl_c()
        raise RuntimeError("no licence")

    with pytest.raises(RuntimeError, match="no licence"), unchanged("env.id=Raises"):
        build()


@pytest.mark.usefixtures("as_it_was")
def test_a_thread_gets_its_folder_and_log_back(caplog: Log) -> None:
    def build() -> None:
        with unchanged("env.id=InAThread"):
            os.chdir("/")
            set_up_the_log()

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert len(caplog.messages) == 2


def test_a_folder_that_was_removed_before_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Log
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with unchanged("env.id=Gone"):
        pass
    assert caplog.messages == []
