"""The actor's side of the replay buffer: gathers rows and sends them in one parcel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.rows import columns_of, transitions_of
from border_cli.core.timing import Clock
from border_cli.core.types import Array, Episode, Experience, State, Transitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What an actor sends, its rows still in the parts in which they came.

    Whoever carries it joins them where the learner will read them, so each is written once.
    """

    actor_id: int
    opt_steps: int  # of the weights that acted last
    env_steps: int
    parts: list[Transitions]
    rows: int  # in all parts
    episodes: tuple[Episode, ...]
    returns: tuple[Moments, ...] = ()

    def experience(self) -> Experience:
        """The same with all rows in one block."""
        return Experience(
            actor_id=self.actor_id,
            opt_steps=self.opt_steps,
            env_steps=self.env_steps,
            transitions=concatenate(self.parts) if self.parts else _NO_ROWS,
            episodes=self.episodes,
            returns=self.returns,
        )


Send: TypeAlias = Callable[[Parcel], float]  # returns the seconds that it waited for room


class ReplayBufferProxy:
    """Gathers at least `n_buffer` rows, then sends them; owned by one actor.

    Where the agent needs them, the running `returns` of the same env steps go with each message.
    """

    def __init__(
        self,
        actor_id: int,
        n_buffer: int,
        send: Send,
        clock: Clock,
        returns: DiscountedReturns | None = None,
    ) -> None:
        self._actor_id = actor_id
        self._n_buffer = n_buffer
        self._send = send
        self._clock = clock
        self.returns = returns
        self._parts: list[Transitions] = []
        self._episodes: list[Episode] = []
        self._env_steps = 0
        self.rows = 0  # gathered and not sent
        self.sent_s = 0.0  # seconds it took to send
        self.blocked_s = 0.0  # seconds without room on the way

    def push(
        self,
        transitions: Transitions,
        *,
        env_steps: int,
        episodes: tuple[Episode, ...],
        opt_steps: int,
    ) -> None:
        """Adds what one step gave; `opt_steps` are those of the weights that acted."""
        self._env_steps += env_steps
        if episodes:
            self._episodes.extend(episodes)
        rows = len(transitions)
        if rows:
            self._parts.append(transitions)
            self.rows += rows
            if self.rows >= self._n_buffer:
                self.flush(opt_steps)

    def flush(self, opt_steps: int) -> None:
        """Sends what is there, if anything; may wait for room on its way."""
        if not self._env_steps:
            return
        parcel = Parcel(
            actor_id=self._actor_id,
            opt_steps=opt_steps,
            env_steps=self._env_steps,
            parts=self._parts,
            rows=self.rows,
            episodes=tuple(self._episodes),
            returns=() if self.returns is None else self.returns.take(),
        )
        began_s = self._clock.now_s()
        blocked_s = self._send(parcel)  # raises when the way is closed: the rows count as lost
        self.blocked_s += blocked_s
        self.sent_s += max(0.0, self._clock.now_s() - began_s - blocked_s)
        self._parts, self._episodes = [], []
        self._env_steps = self.rows = 0

    def state_dict(self) -> State:
        """What was gathered and not sent."""
        state = {
            "columns": columns_of(concatenate(self._parts)) if self._parts else None,
            "env_steps": self._env_steps,
            "episodes": [[each.score, each.length] for each in self._episodes],
        }
        if self.returns is not None:
            state["returns"] = self.returns.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, in place of what was gathered."""
        columns = state["columns"]
        self._parts = [] if columns is None else [Transitions(**transitions_of(columns))]
        self.rows = sum(map(len, self._parts))
        self._env_steps = state["env_steps"]
        self._episodes = [Episode(score, length) for score, length in state["episodes"]]
        if self.returns is not None and "returns" in state:  # earlier versions had none
            self.returns.load_state_dict(state["returns"])


_NO_ROWS = Transitions(
    obs=np.empty(0, np.float32),
    action=np.empty(0, np.int64),
    reward=np.empty(0, np.float32),
    discount=np.empty(0, np.float32),
    next_obs=np.empty(0, np.float32),
)


def concatenate(parts: list[Transitions]) -> Transitions:
    """One block of rows; the single part itself where there is only one."""
    if len(parts) == 1:
        return parts[0]
    return Transitions(
        obs=_join([part.obs for part in parts]),
        action=np.concatenate([part.action for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        discount=np.concatenate([part.discount for part in parts]),
        next_obs=_join([part.next_obs for part in parts]),
    )


def _join(arrays: list[Array]) -> Array:
    first = arrays[0]
    if isinstance(first, dict):
        return {key: np.concatenate([_of(array, key) for array in arrays]) for key in first}
    return np.concatenate(arrays)  # type: ignore[arg-type]


def _of(array: Array, key: str) -> NDArray[Any]:
    assert isinstance(array, dict)
    return array[key]
