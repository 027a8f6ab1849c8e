"""Nothing is kept, judged or handed to actors that follows from a NaN or an infinity."""

from __future__ import annotations

import numpy as np

from border_cli.core.errors import NotFinite
from border_cli.core.interfaces import Agent
from border_cli.core.replay import ReplayBuffer
from border_cli.core.rows import columns_of
from border_cli.trainer.update_log import UpdateLog


def check_losses(updates: UpdateLog, replay_buffer: ReplayBuffer) -> None:
    """Raises `NotFinite` for the first bad loss, with its step and its batch."""
    try:
        updates.check()
    except NotFinite as error:
        if error.index is None:
            raise
        message = f"{error}. Its batch: {_described(replay_buffer, error)}"
        raise NotFinite(message, error.index) from None


def check_weights(agent: Agent) -> None:
    """Raises `NotFinite` for the first bad weight."""
    bad = agent.first_not_finite()
    if bad is not None:
        raise NotFinite(
            f"{bad} of the agent is not finite after optimisation step {agent.opt_steps:,}; "
            "nothing was saved since it was. A smaller agent.learning_rate or an "
            "agent.max_grad_norm often helps"
        )


def _described(replay_buffer: ReplayBuffer, error: NotFinite) -> str:
    """The ranges of what the update learned from, and where it lies."""
    rows = columns_of(replay_buffer.rows(error.index))
    ranges = [
        f"{name} {np.min(column):g} to {np.max(column):g}"
        for name, column in rows.items()
        if column.size
    ]
    return f"{', '.join(ranges)}; slots {error.index.tolist()} of the replay buffer"
