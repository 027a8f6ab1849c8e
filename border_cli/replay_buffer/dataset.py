"""Replay of a data set, and of what actors add to it; every row equally likely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from border_cli.core.spaces import EnvSpec
from border_cli.core.types import State, Transitions
from border_cli.errors import CheckpointError, ConfigError
from border_cli.replay_buffer.config import DatasetConfig
from border_cli.replay_buffer.uniform import UniformReplayBuffer


class DatasetReplayBuffer(UniformReplayBuffer):
    """Owns the rows of the data set, which stay, the newest rows of actors, and its generator; only
    the learner's thread calls it.

    A state names the data set, with a checksum, and holds none of its rows: they are read again.
    The rows of actors are numbered and saved as in any replay buffer.
    """

    def __init__(
        self,
        config: DatasetConfig,
        *,
        spec: EnvSpec,
        rng: np.random.Generator,
        rows: Iterable[Transitions],
        steps: int,
        checksum: object,
        grows: bool,
    ) -> None:
        """`rows` has at most `steps`. `checksum` is read once all rows are. `grows`: actors will
        add rows."""
        # Without actors a ring of a single row stays empty, which no other code need know.
        ring = config if grows else replace(config, capacity=1)
        super().__init__(ring, spec=spec, rng=rng, most_fixed=steps)
        self.config = config
        self._grows = grows
        try:
            self.ring.fix(rows)
        except ValueError as error:
            raise ConfigError(
                f"data set {config.dataset} does not match its metadata: {error}"
            ) from error
        if not self.ring.fixed:
            raise ConfigError(f"data set {config.dataset} contains no transitions")
        self._fingerprint: State = {
            "id": config.dataset,
            "rows": self.ring.fixed,
            "checksum": str(checksum),
        }

    @property
    def capacity(self) -> int:
        return super().capacity if self._grows else self.ring.fixed

    def state_dict(self) -> State:
        return {**super().state_dict(), "dataset": dict(self._fingerprint)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises `CheckpointError` where the data set is another one than it was."""
        saved = state["dataset"]
        for name, now in self._fingerprint.items():
            if saved[name] != now:
                raise CheckpointError(
                    f"data set {self._fingerprint['id']} is not the one the run was trained on: "
                    f"{name} {now}, expected {saved[name]}"
                )
        super().load_state_dict(state)
