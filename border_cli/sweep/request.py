"""The request for a job in its folder: `job.yaml` holds its settings, `job.json` the rest.

The command writes it before the job starts, and the process that runs the job reads it, possibly on
another machine. The job thus has exactly the settings that were checked. `job.yaml` is a complete
config, like `.hydra/resolved.yaml`.
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
class LaunchTerms:
    """The conditions under which the jobs of a sweep run."""

    root: str  # the directory of the sweep, absolute
    at_once: int  # jobs that share the cores of one machine
    cores: int | None = None  # cores granted to each job; None means an equal share of the machine
    scheduled: bool = False  # run by submitit, whose jobs may outlive the command
    pid: int = field(default_factory=os.getpid)  # process id of the command
    host: str = field(default_factory=platform.node)  # host name of the command


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(LaunchTerms):
    """A job as written into its folder."""

    job: Job


def write_request(job: Job, terms: LaunchTerms) -> None:
    """Writes the two files of a job. Raises OSError."""
    request = {
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
        "path": [entry for entry in sys.path if Path(entry).is_absolute()],
        "cwd": str(Path.cwd()),
        "terms": asdict(terms),
    }
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / JOB_YAML).write_text(resolved_yaml(job.config), encoding="utf-8")
    (job.folder / JOB_JSON).write_text(json.dumps(request, indent=1) + "\n", encoding="utf-8")


def read_request(folder: Path) -> Request:
    """Reads the job of a folder. Restores `sys.path`, the current directory, plug-ins and modules
    as they were in the command."""
    request = json.loads((folder / JOB_JSON).read_text(encoding="utf-8"))
    add_to_path(request["path"])
    with suppress(OSError):  # it may not exist on another machine
        os.chdir(request["cwd"])
    register_builtin()
    user_folders()  # calls the plug-ins, which register components
    import_modules(request["imports"])
    config = read_config(folder / JOB_YAML)
    resume, run_dir = request["resume"], request["run_dir"]
    if (folder / SETTINGS).is_file():  # of an earlier attempt, which this one resumes
        resume, run_dir = AUTO, run_dir or str(folder)
    job = Job(
        folder=folder,
        config=replace(config, resume=resume, run_dir=run_dir),
        overrides=tuple(request["overrides"]),
        number=request["number"],
        sources=tuple(Source(*source) for source in request["sources"]),
        record=request["record"],
        command=tuple(request["command"]),
        import_paths=tuple(request["import_paths"]),
        trust=request["trust"],
    )
    return Request(job=job, **request["terms"])
