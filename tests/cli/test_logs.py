"""The log file of a job: whole, its own, and begun again where it was deleted."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from border_cli.cli.logs import job_log

log = logging.getLogger("border_cli.test")


@pytest.fixture
def path(folder: Path) -> Iterator[Path]:
    """The log file, open as Hydra opens it."""
    path = folder / "run" / "border-train.log"
    path.parent.mkdir()
    opened = logging.FileHandler(path)
    opened.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger().addHandler(opened)
    with job_log(Console(quiet=True), quiet=True):
        yield path
    opened.close()


def test_lines_go_to_the_file_in_its_own_format(path: Path) -> None:
    log.info("one")
    log.info("two")
    assert path.read_text() == "INFO one\nINFO two\n"


def test_a_deleted_log_is_begun_again(path: Path) -> None:
    log.info("one")
    path.unlink()
    log.info("two")
    assert path.read_text() == "INFO two\n"


def test_without_its_folder_a_log_waits_for_a_new_one_and_makes_none(path: Path) -> None:
    log.info("one")
    shutil.rmtree(path.parent)
    log.info("two")
    log.info("three")
    assert not path.parent.exists()
    path.parent.mkdir()
    log.info("four")
    assert path.read_text() == "INFO four\n"


def test_a_link_that_takes_the_place_of_the_log_is_not_followed(path: Path) -> None:
    log.info("one")
    target = path.with_name("target")
    target.write_text("a thesis")
    path.unlink()
    path.symlink_to(target)
    log.info("two")
    assert target.read_text() == "a thesis"


def test_handlers_come_back_and_nothing_stays_open(folder: Path) -> None:
    opened = logging.FileHandler(folder / "job.log")
    root = logging.getLogger()
    root.addHandler(opened)
    before = list(root.handlers)
    with job_log(Console(quiet=True), quiet=True):
        log.info("one")
    assert root.handlers == before
    opened.close()
