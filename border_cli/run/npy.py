"""Files of one array each (`.npy`, version 3), written and read piece by piece with a checksum.

numpy's own reader takes a file whole, or maps it, and then a damaged disk kills the process.
"""

from __future__ import annotations

import ast
import hashlib
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x93NUMPY\x03\x00"
LENGTH = struct.Struct("<I")  # of the header, in bytes
ALIGNMENT = 64
MAX_HEADER = 2**20  # bytes
REST_NBYTES = 2**20  # read at once where only the checksum counts


class NpyWriter:
    """Writes rows under a temporary name; `finish` gives the file its own."""

    def __init__(self, path: Path, dtype: np.dtype[Any], rows: int) -> None:
        self.path = path
        self.nbytes = 0
        self._sum = hashlib.sha256()
        self._temporary = path.with_name(f".{path.name}.tmp")
        self._file = self._temporary.open("xb")
        try:
            self._write(_header(dtype, rows))
        except BaseException:
            self.discard()
            raise

    def write(self, rows: NDArray[Any]) -> None:
        """Appends these rows; neither the sum nor the disk holds the interpreter lock."""
        self._write(rows.view(np.uint8).data)

    def _write(self, content: bytes | memoryview) -> None:
        self._sum.update(content)
        self._file.write(content)
        self.nbytes += len(content)

    def finish(self) -> str:
        """Makes the file survive a crash and returns its SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.rename(self.path)
        return self._sum.hexdigest()

    def discard(self) -> None:
        """Removes what was written, finished or not."""
        with suppress(OSError):  # a full disk takes not even what is left to flush
            self._file.close()
        for path in (self._temporary, self.path):
            with suppress(OSError):
                path.unlink(missing_ok=True)


class NpyReader:
    """Reads rows one after another; raises `ValueError` or `OSError` where they are not there."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._sum = hashlib.sha256()
        try:
            self.dtype, self.rows = self._read_header()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> tuple[np.dtype[Any], int]:
        start = self._take(len(MAGIC) + LENGTH.size)
        (length,) = LENGTH.unpack(start[len(MAGIC) :])
        if not start.startswith(MAGIC) or length > MAX_HEADER:
            raise ValueError("it is not a .npy file of version 3")
        try:
            header = ast.literal_eval(self._take(length).decode())
            dtype = np.lib.format.descr_to_dtype(header["descr"])
            (rows,) = header["shape"]
        except Exception as error:  # a damaged header may raise anything
            raise ValueError(f"its header is damaged: {error}") from error
        if dtype.hasobject:
            raise ValueError("it contains Python objects, which could run code")
        if dtype.itemsize == 0 or not isinstance(rows, int) or rows < 0:
            raise ValueError(f"its header says {rows} rows of {dtype.itemsize} bytes")
        size = os.fstat(self._file.fileno()).st_size
        if size != self._file.tell() + rows * dtype.itemsize:
            raise ValueError(f"it has {size} bytes, which does not match its header")
        return dtype, rows

    def _take(self, count: int) -> bytes:
        content = self._file.read(count)
        if len(content) != count:
            raise ValueError("it is truncated")
        self._sum.update(content)
        return content

    def read(self, rows: int) -> NDArray[Any]:
        """The next rows. [rows]"""
        block = np.empty(rows, self.dtype)  # [rows]
        view = block.view(np.uint8).data
        if self._file.readinto(view) != len(view):
            raise ValueError("it is truncated")
        self._sum.update(view)
        return block

    def finish(self) -> str:
        """The SHA-256 of the whole file, whatever of it was read so far."""
        while rest := self._file.read(REST_NBYTES):
            self._sum.update(rest)
        return self._sum.hexdigest()

    def close(self) -> None:
        self._file.close()


def _header(dtype: np.dtype[Any], rows: int) -> bytes:
    content = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (rows,),
    }
    text = repr(content).encode()
    start = len(MAGIC) + LENGTH.size
    length = -(-(start + len(text) + 1) // ALIGNMENT) * ALIGNMENT - start
    return MAGIC + LENGTH.pack(length) + text.ljust(length - 1) + b"\n"
