"""The Minari data sets on this machine and their metadata, read without Minari."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from border_cli.errors import ConfigError
from border_cli.words import did_you_mean

ROOT = "MINARI_DATASETS_PATH"
_ID = re.compile(r"([-_\w][-_\w/]*[-_\w]+/)?[-_\w]+?-v\d+")  # (namespace/)name-v0


def root() -> Path:
    """Returns the directory in which Minari stores data sets."""
    path = os.environ.get(ROOT)
    return Path(path) if path is not None else Path.home() / ".minari" / "datasets"


def known_ids() -> list[str]:
    """Returns the ids of all data sets on this machine, sorted."""
    dirs = (path.parents[1].relative_to(root()) for path in root().rglob("data/metadata.json"))
    names = (directory.as_posix() for directory in dirs)
    return sorted(name for name in names if not re.search(r"(^|/)\.", name))  # skips unfinished


def is_known(dataset: str) -> bool:
    """Returns whether a data set with this id exists."""
    return is_id(dataset) and (root() / dataset / "data" / "metadata.json").is_file()


def is_id(dataset: str) -> bool:
    """Returns whether Minari accepts this id."""
    return _ID.fullmatch(dataset) is not None and "//" not in dataset


def refuse_unknown(setting: str, dataset: str | None) -> str:
    """Returns the id of an existing data set; raises ConfigError if there is no such data set."""
    if dataset is not None and is_known(dataset):
        return dataset
    known = known_ids()
    listed = f"Data sets in {root()}: {', '.join(known)}"
    options = listed if known else f"There are no data sets in {root()}"
    if dataset is None:
        raise ConfigError(f"{setting} must be given: the id of a Minari data set. {options}")
    raise ConfigError(
        f"{setting}: unknown data set {dataset!r}{did_you_mean(dataset, known) or '.'} {options}. "
        f"border-record creates one from a run, `minari download {dataset}` fetches one; ${ROOT} "
        "sets the directory"
    )


def metadata_of(dataset: str) -> dict[str, Any]:
    """Returns the metadata of a data set; raises ConfigError if they cannot be read."""
    path = root() / dataset / "data" / "metadata.json"
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"data set {dataset}: {path} cannot be read: {error}") from error
    if not isinstance(metadata, dict):
        raise ConfigError(f"data set {dataset}: {path} contains no metadata")
    return metadata


def counts_of(dataset: str) -> tuple[int, int]:
    """Returns how many episodes and steps a data set has, according to its metadata."""
    metadata = metadata_of(dataset)
    episodes, steps = metadata.get("total_episodes"), metadata.get("total_steps")
    if not isinstance(episodes, int) or not isinstance(steps, int) or min(episodes, steps) < 1:
        raise ConfigError(
            f"data set {dataset} is empty: its metadata says {episodes} episodes, {steps} steps"
        )
    return episodes, steps


def reference_scores(dataset: str) -> tuple[float, float] | None:
    """Reads the returns that count as scores 0 and 100; None if the data set has no usable ones."""
    if not is_known(dataset):
        return None
    metadata = metadata_of(dataset)
    low, high = metadata.get("ref_min_score"), metadata.get("ref_max_score")
    valid = isinstance(low, int | float) and isinstance(high, int | float)
    return (float(low), float(high)) if valid and low < high else None  # type: ignore[arg-type,operator]
