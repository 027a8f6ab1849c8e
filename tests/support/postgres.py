"""A temporary PostgreSQL server from Debian's package, with its data and socket in one folder."""

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
ACCOUNT = "postgres"  # created by the package; the server refuses to run as root
USER = "border"
DEADLINE_S = 300.0


class PostgresServer:
    """A server that creates a new database for every test."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._numbers = count(1)

    def new_database(self) -> str:
        """Creates an empty database; returns its URL for SQLAlchemy and Optuna."""
        name = f"test_{next(self._numbers)}"
        self._run("createdb", f"--host={self._folder}", f"--username={USER}", name)
        return f"postgresql+psycopg://{USER}@/{name}?host={self._folder}"

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        settings = f"-k {self._folder} -c listen_addresses='' -c fsync=off"
        trusted = ("--auth=trust", f"--username={USER}", "--encoding=UTF8", "--no-locale")
        self._run("initdb", "--no-sync", *trusted, f"--pgdata={self._data}")
        log = f"--log={self._folder}/log"  # without it the server keeps our pipe open
        self._run("pg_ctl", "start", "--wait", f"--pgdata={self._data}", log, "-o", settings)

    def stop(self) -> None:
        """Stops the server, and closes all connections to it."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--mode=immediate", f"--pgdata={self._data}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *argv: str) -> None:
        account: dict[str, Any] = {}
        if _is_root():
            account = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []}
        process = subprocess.run(
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
        assert process.returncode == 0, process.stdout


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Runs a server until the block ends; skips the test if PostgreSQL is not installed."""
    programs = sorted(INSTALLED.glob("*/bin/initdb"))
    if not programs:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # short: socket paths are limited
    if _is_root():
        shutil.chown(folder, ACCOUNT, ACCOUNT)
    server = PostgresServer(programs[-1].parent, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _is_root() -> bool:
    return os.geteuid() == 0
