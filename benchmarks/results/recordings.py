"""What a recorded data set holds, read as anybody reads a Minari data set."""

from __future__ import annotations

import hashlib
from typing import Any

import minari
import numpy as np


def facts(dataset: str) -> dict[str, Any]:
    """Episodes, steps, returns, reference scores, and a checksum of what was recorded."""
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
