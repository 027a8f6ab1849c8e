"""Complete runs from settings built in Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from border_cli.config.job import Job
from border_cli.launch.run import RunOptions, run_job
from border_cli.launch.summary import Result
from border_cli.settings.run import AUTO, RunConfig


def trained(config: RunConfig, folder: Path, *, resume: bool = False, **options: Any) -> Result:
    """Runs, or resumes, in a folder; `options` are fields of `RunOptions`."""
    if resume:
        config = replace(config, resume=AUTO, run_dir=str(folder))
    job = Job(folder=folder, config=config)
    result = run_job(job, RunOptions(finished_too=True, **options))
    assert isinstance(result, Result)
    return result
