"""The request for a job in its folder: `job.yaml`, its settings, and `job.json`, the rest.

Written by the command before the job starts and read by whichever process runs it, on whichever
machine: the job has the settings that were checked. `job.yaml` is a complete config, as
`.hydra/resolved.yaml` is.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from border_cli.config.job import Job, Source, resolved_yaml
from border_cli.config.saved import read_config
from border_cli.config.search_path import add_to_path, import_modules, user_folders
from border_cli.registry import register_builtin
from border_cli.settings.run import AUTO
from border_cli.system.files import SETTINGS

JOB_YAML, JOB_JSON = "job.yaml", "job.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms the jobs of a sweep run."""

    root: str  # the directory of the sweep, absolute
    at_once: int  # jobs that share the cores of one machine
    cores: int | None = None  # that each has of them; None: all
    scheduled: bool = False  # by a scheduler: the jobs may outlive the command
    pid: int = field(default_factory=os.getpid)  # of the command
    host: str = field(default_factory=platform.node)  # where that is


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Terms):
    """A job as it was written into its folder."""

    job: Job


def write_request(job: Job, terms: Terms) -> None:
    """Writes the two files of a job. Raises OSError."""
    asked = {
        "number": job.number,
        "overrides": job.overrides,
        "command": job.command,
        "sources": job.sources,
        "record": dict(job.record),
        "import_paths": job.import_paths,
        "trust": job.trust,
        "run_dir": job.config.run_dir,
        "resume": job.config.resume,
        "imports": job.config.imports,
        "path": [each for each in sys.path if Path(each).is_absolute()],
        "cwd": str(Path.cwd()),
        "terms": asdict(terms),
    }
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / JOB_YAML).write_text(resolved_yaml(job.config), encoding="utf-8")
    (job.folder / JOB_JSON).write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8")


def read_request(folder: Path) -> Request:
    """The job of a folder. What the command had found of the user's (`sys.path`, the current
    directory, plug-ins, modules) this process finds, too."""
    asked = json.loads((folder / JOB_JSON).read_text(encoding="utf-8"))
    add_to_path(asked["path"])
    with suppress(OSError):  # a worker on another machine may lack it
        os.chdir(asked["cwd"])
    register_builtin()
    user_folders()  # calls the plug-ins, which register components
    import_modules(asked["imports"])
    config = read_config(folder / JOB_YAML)
    resume, run_dir = asked["resume"], asked["run_dir"]
    if (folder / SETTINGS).is_file():  # else a scheduler has started it once more: it goes on
        resume, run_dir = AUTO, run_dir or str(folder)
    job = Job(
        folder=folder,
        config=replace(config, resume=resume, run_dir=run_dir),
        overrides=tuple(asked["overrides"]),
        number=asked["number"],
        sources=tuple(Source(*each) for each in asked["sources"]),
        record=asked["record"],
        command=tuple(asked["command"]),
        import_paths=tuple(asked["import_paths"]),
        trust=asked["trust"],
    )
    return Request(job=job, **asked["terms"])
