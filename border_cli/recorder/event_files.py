"""The event files of a run's folder: their names, their records, and what is no longer shown."""

from __future__ import annotations

import io
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

from border_cli.core.files import not_through_links

PREFIX = "events.out.tfevents."  # TensorBoard reads every file with `tfevents` in its name
ASIDE = "superseded-"
HEAD, TAIL = 12, 4  # bytes of a record around its event: length and checksum, checksum


def record(event: Event) -> bytes:
    """One event with the length and the checksums of TensorBoard's file format."""
    framed = io.BytesIO()
    RecordWriter(framed).write(event.SerializeToString())
    return framed.getvalue()


def rows(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Step and record of each row of metrics from the byte `start` on.

    What follows a torn or damaged record is left out, as TensorBoard does it.
    """
    content = path.read_bytes() if path.is_file() else b""
    while start + HEAD <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + HEAD + length + TAIL
        if end > len(content):
            return
        try:
            event = Event.FromString(content[start + HEAD : end - TAIL])
        except DecodeError:
            return
        if event.HasField("summary"):
            yield event.step, content[start:end]
        start = end


def event_files(folder: Path) -> list[Path]:
    """In the order in which TensorBoard reads them."""
    return sorted(each for each in folder.glob(f"{PREFIX}*") if each.is_file())


def new_event_file(folder: Path, wall_time_s: float) -> Path:
    """A name behind all that are there: TensorBoard never goes back to an earlier one.

    The clock alone will not do. A run may go on within the same second, or where it is earlier.
    """
    begun = int(wall_time_s)
    for each in event_files(folder):
        digits = each.name.removeprefix(PREFIX).partition(".")[0]
        if digits.isdecimal():
            begun = max(begun, int(digits) + 1)
    return folder / f"{PREFIX}{begun:010d}.{socket.gethostname()}.{os.getpid()}.0"


def aside(path: Path) -> Path:
    """Where rows of an event file are kept that TensorBoard shall not show any more."""
    return path.with_name(ASIDE + path.name.removeprefix(PREFIX))


def put_aside(path: Path) -> None:
    """Hides the rows of an event file from TensorBoard.

    An empty file stays in its place: one that reads without its data server waits for ever for a
    file that was there before.
    """
    if path.stat().st_size == 0:
        return
    place, number = aside(path), 2
    while os.path.lexists(place):
        place, number = aside(path).with_name(f"{aside(path).name}.{number}"), number + 1
    path.rename(place)
    with suppress(OSError):  # no room even for a name
        os.close(not_through_links(path, os.O_CREAT | os.O_WRONLY))
