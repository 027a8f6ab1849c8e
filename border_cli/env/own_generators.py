"""States of Python's and NumPy's global generators for one environment alone.

Many environments draw from `random` or `np.random` and not from the generator that
`reset(seed=…)` seeds. Runs with one seed then differ, and evaluations disturb each other.
"""

from __future__ import annotations

import logging
import pickle
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from border_cli.env.answers import begun

log = logging.getLogger(__name__)

# Held while the states of one environment are in place. Nothing waits for it: actor threads would
# step one after another.
_exchanged = threading.Lock()


def global_states() -> tuple[Any, Any]:
    """The states of `random` and `np.random`."""
    return random.getstate(), np.random.get_state()


def set_global_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _seeded(seed: int) -> tuple[Any, Any]:
    """States that follow from a seed."""
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state()


class OwnGenerators(gym.Wrapper[Any, Any, Any, Any]):
    """Exchanges the global states around each `reset` and `step`; `reset(seed=…)` seeds its own.

    Where another thread has exchanged them, the environment draws from what is there.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._states = global_states()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._states = _seeded(seed)
        with self._exchange():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        with self._exchange():
            return self.env.step(action)

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        if not _exchanged.acquire(blocking=False):
            yield
            return
        others = global_states()
        set_global_states(self._states)
        try:
            yield
        finally:
            self._states = global_states()
            set_global_states(others)
            _exchanged.release()


class GeneratorFinder(gym.Wrapper[Any, Any, Any, Any]):
    """Looks whether an environment uses the global generators, and resets twice with its seed."""

    found = False
    _has_reset = False

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._id = env_id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        with self._watched():
            answer = begun(self.env.reset(seed=seed, options=options))
        if not self._has_reset:
            self._has_reset = True
            first = pickle.dumps(answer[0])
            with self._watched():
                answer = begun(self.env.reset(seed=seed, options=options))
            if not self.found and first != pickle.dumps(answer[0]):
                log.warning(
                    "env.id=%s: reset(seed=…) with one seed gives different observations, though "
                    "nothing is drawn from random or np.random: runs and evaluations do not repeat",
                    self._id,
                )
        return answer

    def step(self, action: Any) -> Any:
        with self._watched():
            return self.env.step(action)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        before = pickle.dumps(global_states())
        yield
        self.found = self.found or before != pickle.dumps(global_states())
