"""Nothing is kept, judged or handed to actors that follows from a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import NotFinite
from border_cli.core.interfaces import Agent, ReplayBuffer
from border_cli.core.rows import columns_of
from border_cli.trainer.update_log import UpdateLog

BATCH_FILE = "not_finite.npz"  # in the run directory


def check_losses(updates: UpdateLog, replay_buffer: ReplayBuffer) -> None:
    """Raises `NotFinite` for the first bad loss, with its step and its batch."""
    try:
        updates.check()
    except NotFinite as error:
        if error.index is None:
            raise
        rows = columns_of(replay_buffer.rows(error.index))
        message = f"{error}. Its batch is in {BATCH_FILE}: {_ranges(rows)}"
        raise NotFinite(message, error.index, {"slot": error.index, **rows}) from None


def check_weights(agent: Agent) -> None:
    """Raises `NotFinite` for the first bad weight."""
    bad = agent.first_not_finite()
    if bad is not None:
        raise NotFinite(
            f"{bad} of the agent is not finite after update {agent.opt_steps:,}; "
            "nothing has been saved since. A smaller agent.learning_rate or an "
            "agent.max_grad_norm often helps"
        )


def _ranges(rows: Mapping[str, NDArray[Any]]) -> str:
    """The smallest and the largest of each column."""
    return ", ".join(
        f"{name} {np.min(column):g} to {np.max(column):g}"
        for name, column in rows.items()
        if column.size
    )
