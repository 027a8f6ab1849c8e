"""How the jobs of a sweep come about and are run, as its configuration says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from border_cli.config.sources import Files
from border_cli.config.tuned import LIMITS
from border_cli.errors import ConfigError

LAUNCHER = "hydra/launcher"
NUMBER = "${hydra:job.num}"  # the sub-folder of a job, unless a user chose another
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # its name in settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """How the jobs of a sweep come about and are run."""

    jobs: list[list[str]] | None  # the overrides of each; None: its sweeper invents them
    skip_invalid: bool  # leaves out jobs that are refused
    fixed: list[str]  # overrides of every job
    launcher: str  # the choice, such as joblib
    launcher_settings: dict[str, Any]
    root: Path  # the directory of the sweep, absolute
    failed_value: float | None  # what the sweeper is told of a failed job; None: an exception
    config: DictConfig  # the composition of the sweep itself, for Hydra's plug-ins
    own_names: bool  # the sub-folder of a job is named by us


def grid(overrides: Sequence[Override]) -> list[list[str]]:
    """Every combination of the values of a sweep, as Hydra's own sweeper makes them: of a key that
    is given twice, the last one counts."""
    values: dict[str, list[str]] = {}
    for each in overrides:
        key = each.get_key_element()
        if not each.is_sweep_override():
            values[key] = [each.get_value_element_as_str()]
        elif each.is_discrete_sweep():
            values[key] = list(each.sweep_string_iterator())
        else:
            kind = each.value_type.name if each.value_type else "unknown"
            raise ConfigError(f"BasicSweeper does not support sweep type : {kind}")
    named = [[f"{key}={value}" for value in each] for key, each in values.items()]
    jobs = [list(each) for each in itertools.product(*named)]
    if not jobs:
        raise ConfigError(f"the sweep has no job: {' '.join(str(e.input_line) for e in overrides)}")
    return jobs


def failed_value(sweeper: DictConfig) -> float | None:
    """Hydra's own sweeper ends at an exception; so do others, unless they allow for failures, but
    they learn from the worst value."""
    direction = str(sweeper.get("direction")).rpartition(".")[2]
    worst = {"maximize": -math.inf, "minimize": math.inf}
    if sweeper.get("_target_") == BASIC_SWEEPER:
        return math.nan
    return None if "max_failure_rate" in sweeper else worst.get(direction)


def is_plain(override: Override, files: Files) -> bool:
    """Whether an override only sets a value, which changes nothing about what else is merged."""
    return not (
        override.is_delete()
        or override.is_add()
        or override.is_force_add()
        or override.package is not None
        or override.is_hydra_override()
        or override.key_or_group in (*LIMITS, "imports", "trainer")
        or isinstance(override.value(), dict)
        or "${" in str(override.input_line)
        or files.group_exists(override.key_or_group)
    )
