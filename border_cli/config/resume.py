"""`resume=RUN_DIR`: what goes with it, and where it leads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from border_cli.config.overrides import parsed
from border_cli.config.preflight import AUTO
from border_cli.core.errors import ConfigError
from border_cli.core.files import SETTINGS, SWEEP_MARK

_REASONS = {
    "run_dir": "a resumed run keeps its run directory",
    "init_from": "a resumed run has its own weights; init_from starts a new run",
    "experiment": "a resumed run keeps its settings; give the ones to change",
    "tuned": "a resumed run keeps its settings; give the ones to change",
}


def run_to_resume(overrides: Sequence[str]) -> Path | None:
    """The RUN_DIR of `resume=RUN_DIR`, absolute; None where nothing or `auto` is typed."""
    typed = parsed([text for text in overrides if "resume" in text])
    named = [each for each in typed if each.key_or_group == "resume" and not each.is_delete()]
    if not named or named[-1].is_sweep_override():
        return None
    value, text = named[-1].value(), named[-1].get_value_string()
    if value in (None, "", AUTO):
        return None
    return Path(value if isinstance(value, str) else text).expanduser().absolute()


def refuse_beside_resume(
    run_dir: Path, overrides: Sequence[str], *, multirun: bool, config_name: str
) -> None:
    """Refuses what contradicts `resume=RUN_DIR`, and a folder that holds no run."""
    if multirun:
        raise ConfigError(
            "resume=RUN_DIR continues one run and -m runs several: to continue a sweep, repeat its "
            "command with run_dir=SWEEP_DIR resume=auto"
        )
    if config_name != "config":
        raise ConfigError(
            f"-cn {config_name}: a resumed run uses its own settings, {run_dir / SETTINGS}"
        )
    for override in parsed(overrides):
        if override.key_or_group in _REASONS:
            reason = _REASONS[override.key_or_group]
            raise ConfigError(
                f"{override.input_line} cannot be combined with resume=RUN_DIR: {reason}"
            )
    refuse_no_run(run_dir)


def refuse_no_run(run_dir: Path) -> None:
    """Raises where a folder holds no single run."""
    if not run_dir.is_dir():
        what = "not a directory" if run_dir.exists() else "no such directory"
        raise ConfigError(f"resume: {what}: {run_dir}{_run_around(run_dir)}")
    if (run_dir / SWEEP_MARK).exists():
        jobs = sorted(each.parent.parent for each in run_dir.glob(f"*/{SETTINGS}"))
        one = f", or resume one of its jobs, such as {jobs[0]}" if jobs else ""
        raise ConfigError(
            f"resume: {run_dir} is the directory of a sweep: repeat its command with "
            f"run_dir={run_dir} resume=auto{one}"
        )
    if not (run_dir / SETTINGS).is_file():
        raise ConfigError(
            f"resume: {run_dir} is not a run directory: there is no {SETTINGS}"
            f"{_run_around(run_dir)}"
        )


def _run_around(place: Path) -> str:
    """The run that a checkpoint or a file of it belongs to."""
    around = next((each for each in place.parents if (each / SETTINGS).is_file()), None)
    return f"; the run is {around}" if around else ""
