"""Separate states of Python's and NumPy's global random generators for each environment.

Many environments draw from `random` or `np.random` instead of the generator that `reset(seed=…)`
seeds. Without separate states, runs with the same seed differ and evaluations affect each other.
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

from border_cli.env.step_results import unpack_reset

log = logging.getLogger(__name__)

# Held while the states of one environment are swapped in. Other threads do not wait for it, because
# actor threads would then step one at a time.
_exchanged = threading.Lock()


def global_states() -> tuple[Any, Any]:
    """Returns the states of `random` and `np.random`."""
    return random.getstate(), np.random.get_state()


def set_global_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _make_states(seed: int) -> tuple[Any, Any]:
    """Returns the states of both generators for a seed."""
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state()


class OwnGenerators(gym.Wrapper[Any, Any, Any, Any]):
    """Swaps in its own states for each `reset` and `step`; `reset(seed=…)` seeds them.

    While another thread has swapped in its states, the environment draws from those instead.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._states = global_states()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._states = _make_states(seed)
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
    """Detects whether an environment uses the global generators. The first reset is repeated, to
    check that its observation is reproducible."""

    found = False
    _has_reset = False

    def __init__(self, env: gym.Env[Any, Any], env_id: str) -> None:
        super().__init__(env)
        self._id = env_id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        with self._watch():
            result = unpack_reset(self.env.reset(seed=seed, options=options))
        if not self._has_reset:
            self._has_reset = True
            first = pickle.dumps(result[0])
            with self._watch():
                result = unpack_reset(self.env.reset(seed=seed, options=options))
            if not self.found and first != pickle.dumps(result[0]):
                log.warning(
                    "env.id=%s: reset(seed=…) with the same seed returns different observations "
                    "without draws from random or np.random: runs and evaluations do not repeat",
                    self._id,
                )
        return result

    def step(self, action: Any) -> Any:
        with self._watch():
            return self.env.step(action)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        before = pickle.dumps(global_states())
        yield
        self.found = self.found or before != pickle.dumps(global_states())
