"""The event files of a run: their names, their records, and what TensorBoard no longer shows."""

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

from border_cli.core.errors import CheckpointError
from border_cli.core.files import not_through_links

PREFIX = "events.out.tfevents."  # TensorBoard reads every file with `tfevents` in its name
SUFFIX = ".border"  # of ours, in a directory where users may put event files of their own
ASIDE = "superseded-"
FOLDER = "tensorboard"  # in the run directory, of runs that earlier versions began
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
        if _has_metrics(event):
            yield event.step, content[start:end]
        start = end


def _has_metrics(event: Event) -> bool:
    """Whether an event is a row of metrics; only summaries of a plug-in name one."""
    return any(not each.metadata.plugin_data.plugin_name for each in event.summary.value)


class EventFiles:
    """The event files of one run, directly in its directory.

    TensorBoard names a run by the directory of its event files. Runs that earlier versions began
    have them in `tensorboard/`, and a resume keeps them together there.
    """

    def __init__(self, run_dir: Path) -> None:
        before = run_dir / FOLDER
        self.in_folder = any(before.glob(f"{PREFIX}*"))
        self.directory = before if self.in_folder else run_dir
        self._pattern = f"{PREFIX}*" if self.in_folder else f"{PREFIX}*{SUFFIX}"

    def all(self) -> list[Path]:
        """In the order in which TensorBoard reads them."""
        return sorted(each for each in self.directory.glob(self._pattern) if each.is_file())

    def named(self, name: str) -> Path:
        """The file of a checkpoint's position, which need not exist any more."""
        path = self.directory / Path(name).name
        if not path.name.startswith(PREFIX):
            raise CheckpointError(f"{name!r} is not an event file of the run in {self.directory}")
        return path

    def new(self, wall_time_s: float) -> Path:
        """A name that sorts after all others: TensorBoard never returns to an earlier file.

        The clock alone is not enough. A run may be resumed within the same second, or on a machine
        whose clock is behind.
        """
        begun = int(wall_time_s)
        for each in self.all():
            digits = each.name.removeprefix(PREFIX).partition(".")[0]
            if digits.isdecimal():
                begun = max(begun, int(digits) + 1)
        origin = f"{socket.gethostname()}.{os.getpid()}.0"
        return self.directory / f"{PREFIX}{begun:010d}.{origin}{SUFFIX}"


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
