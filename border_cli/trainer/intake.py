"""From the actors' messages into the replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import NotFinite
from border_cli.core.interfaces import Agent
from border_cli.core.replay import ReplayBuffer
from border_cli.core.types import Array, Experience, State, leaves
from border_cli.trainer.counters import Counters, Window


class Intake:
    """Pushes rows, shows them to the agent, counts them, and refuses a NaN or an infinity with its
    name and step.

    Owned by the learner's thread.
    """

    def __init__(
        self,
        agent: Agent,
        replay_buffer: ReplayBuffer,
        *,
        counters: Counters,
        window: Window,
    ) -> None:
        self._agent = agent
        self._replay_buffer = replay_buffer
        self._counters = counters
        self._window = window
        self._samples_of: dict[int, int] = {}  # actor id -> samples taken in

    def state_dict(self) -> State:
        """How far each actor is."""
        return {str(actor): samples for actor, samples in self._samples_of.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self._samples_of = {int(actor): int(samples) for actor, samples in state.items()}

    def take(self, messages: list[Experience]) -> None:
        """Takes in what arrived, in the order of its arrival."""
        for message in messages:
            rows = message.transitions
            if len(rows):
                self._check(message)
                self._replay_buffer.push(rows)
                self._agent.observe(rows)
            before = self._samples_of.get(message.actor_id, 0)
            self._samples_of[message.actor_id] = before + len(rows)
            self._counters.samples_total += len(rows)
            self._counters.env_steps += message.env_steps
            self._window.arrived(message)

    def _check(self, message: Experience) -> None:
        rows = message.transitions
        named: list[tuple[str, Array]] = [
            ("observation", rows.obs),
            ("action", rows.action),
            ("reward", rows.reward),
            ("next observation", rows.next_obs),
        ]
        bad = [
            (_first_bad_row(leaf), name, leaf)
            for name, array in named
            for leaf in leaves(array)
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all()
        ]
        if not bad:
            return
        first, name, leaf = min(bad, key=lambda each: each[0])  # the cause, not what followed
        sample = self._samples_of.get(message.actor_id, 0) + first + 1
        raise NotFinite(
            f"{name} of actor {message.actor_id}, its sample {sample:,} "
            f"(optimisation step {self._counters.opt_steps:,}), is not finite: "
            f"{leaf[first].tolist()}. Nothing of its message was learned from"
        )


def _first_bad_row(leaf: NDArray[np.floating]) -> int:
    good = np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [M]
    return int(np.argmin(good))
