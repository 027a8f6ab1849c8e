"""The contents of a recorded data set, read with Minari."""

from __future__ import annotations

import hashlib
from typing import Any

import minari
import numpy as np


def facts(dataset: str) -> dict[str, Any]:
    """Returns the number of steps, the returns, the reference scores and a checksum."""
    data = minari.load_dataset(dataset)
    digest = hashlib.sha256()
    returns = []
    for episode in data.iterate_episodes():
        for values in (episode.observations, episode.actions, episode.rewards):
            digest.update(np.ascontiguousarray(values).tobytes())
        returns.append(float(np.sum(episode.rewards)))
    metadata = data.storage.metadata
    return {
        "checksum": digest.hexdigest()[:16],
        "steps": int(data.total_steps),
        "returns": returns,
        **{name: metadata.get(name) for name in ("ref_min_score", "ref_max_score")},
    }
