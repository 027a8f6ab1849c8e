"""Texts that one process leaves for another."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import signal

import pytest
from remote_fakes import leave_note

from border_cli.process.note_file import NoteFile


def test_what_one_process_writes_another_reads_after_its_end() -> None:
    file = NoteFile()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=leave_note, args=(file, 20_000))
    process.start()
    process.join()
    process.close()
    assert file.read() == bytes(range(256)) * 20_000
    file.write(b"short")
    assert file.read() == b"short"
    file.close()


def test_a_closed_file_holds_nothing() -> None:
    file = NoteFile()
    assert file.read() == b""
    file.write(b"something")
    file.close()
    file.close()
    assert file.read() == b""


def test_a_text_that_the_system_refuses_leaves_the_file_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = NoteFile()
    file.write(b"an earlier one")
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with caplog.at_level(logging.WARNING):
            file.write(bytes(2_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read() == b""
    assert "could not store 2000 bytes" in caplog.text
    file.close()
