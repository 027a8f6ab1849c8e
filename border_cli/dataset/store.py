"""Which data sets there are on this machine, and what their metadata say. Imports no Minari."""

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
    """Where Minari keeps its data sets."""
    place = os.environ.get(ROOT)
    return Path(place) if place is not None else Path.home() / ".minari" / "datasets"


def known_ids() -> list[str]:
    """Every data set of this machine, sorted."""
    found = (each.parents[1].relative_to(root()) for each in root().rglob("data/metadata.json"))
    names = (each.as_posix() for each in found)
    return sorted(name for name in names if not re.search(r"(^|/)\.", name))  # hidden: unfinished


def is_known(dataset: str) -> bool:
    """Whether there is one of that name."""
    return is_id(dataset) and (root() / dataset / "data" / "metadata.json").is_file()


def is_id(dataset: str) -> bool:
    """Whether Minari would take it as a name."""
    return _ID.fullmatch(dataset) is not None and "//" not in dataset


def refuse_unknown(setting: str, dataset: str | None) -> str:
    """The name of a data set that is there; any other is refused with those that are."""
    if dataset is not None and is_known(dataset):
        return dataset
    known = known_ids()
    listed = f"Data sets in {root()}: {', '.join(known)}"
    there = listed if known else f"There are no data sets in {root()}"
    if dataset is None:
        raise ConfigError(f"{setting} must be given: the id of a Minari data set. {there}")
    raise ConfigError(
        f"{setting}: unknown data set {dataset!r}{did_you_mean(dataset, known) or '.'} {there}. "
        f"border-record makes one from a run, `minari download {dataset}` gets one; ${ROOT} sets "
        "the directory"
    )


def metadata_of(dataset: str) -> dict[str, Any]:
    """The metadata of a data set; raises ConfigError where they cannot be read."""
    path = root() / dataset / "data" / "metadata.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"data set {dataset}: {path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"data set {dataset}: {path} contains no metadata")
    return found


def counts_of(dataset: str) -> tuple[int, int]:
    """How many episodes and steps a data set says it has."""
    found = metadata_of(dataset)
    episodes, steps = found.get("total_episodes"), found.get("total_steps")
    if not isinstance(episodes, int) or not isinstance(steps, int) or min(episodes, steps) < 1:
        raise ConfigError(
            f"data set {dataset} is empty: its metadata says {episodes} episodes, {steps} steps"
        )
    return episodes, steps


def reference_scores(dataset: str) -> tuple[float, float] | None:
    """The returns that count as 0 and as 100; None where the data set has none that can be used."""
    if not is_known(dataset):
        return None
    found = metadata_of(dataset)
    low, high = found.get("ref_min_score"), found.get("ref_max_score")
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return (float(low), float(high)) if numbers and low < high else None  # type: ignore[arg-type,operator]
