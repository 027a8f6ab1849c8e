"""A PostgreSQL server of Debian's package, in a folder of its own and reached by a socket in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

INSTALLED = Path("/usr/lib/postgresql")
ACCOUNT = "postgres"  # what the package makes; the server refuses to run as root
USER = "border"
DEADLINE_S = 60.0


class PostgresServer:
    """Gives each test a database of its own."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._numbers = count(1)

    def new_database(self) -> str:
        """The URL of an empty database, as SQLAlchemy and Optuna take it."""
        name = f"test_{next(self._numbers)}"
        self._run("createdb", f"--host={self._folder}", f"--username={USER}", name)
        return f"postgresql+psycopg://{USER}@/{name}?host={self._folder}"

    def start(self) -> None:
        """Returns when the server answers."""
        settings = f"-k {self._folder} -c listen_addresses='' -c fsync=off"
        trusted = ("--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale")
        self._run("initdb", "--no-sync", *trusted, f"--pgdata={self._data}")
        log = f"--log={self._folder}/log"  # else it keeps our pipe open
        self._run("pg_ctl", "start", "--wait", f"--pgdata={self._data}", log, "-o", settings)

    def stop(self) -> None:
        """Ends it and every connection to it."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--mode=immediate", f"--pgdata={self._data}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *argv: str) -> None:
        account: dict[str, Any] = {}
        if _is_root():
            account = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []}
        done = subprocess.run(
            [self._binaries / program, *argv],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            **account,
        )
        assert done.returncode == 0, done.stdout


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server that runs until the block ends; the test is skipped where none is installed."""
    found = sorted(INSTALLED.glob("*/bin/initdb"))
    if not found:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # short: sockets have short names
    if _is_root():
        shutil.chown(folder, ACCOUNT, ACCOUNT)
    server = PostgresServer(found[-1].parent, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _is_root() -> bool:
    return os.geteuid() == 0
