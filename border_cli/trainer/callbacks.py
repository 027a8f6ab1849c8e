"""All callbacks of a run behind one interface: their hooks, their state and their stop requests."""

from __future__ import annotations

import copy
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from border_cli.core.callback import Callback
from border_cli.core.output import RunEnd, RunInfo
from border_cli.core.types import State
from border_cli.errors import BorderError, ConfigError, RunFailed, place_of
from border_cli.words import unknown

log = logging.getLogger(__name__)

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
SAVED = (type(None), bool, int, float, str, np.ndarray, np.generic)  # types allowed in a state


def name_callbacks(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Returns callbacks by class name; each further one of a class has an underscore appended."""
    by_name: dict[str, Callback] = {}
    for callback in callbacks:
        name = type(callback).__name__
        while name in by_name:
            name += "_"
        by_name[name] = callback
    return by_name


class Callbacks:
    """All callbacks of a run, called in order; owned by the learner's thread."""

    def __init__(self, callbacks: Mapping[str, Callback] | None = None) -> None:
        """The keys of `callbacks` are their names in messages and checkpoints."""
        self._callbacks = dict(callbacks or {})
        self._begun = False
        self._failed: set[str] = set()  # names of callbacks of which a hook has raised
        for name, callback in self._callbacks.items():
            _refuse_invalid(name, callback)
        self.clear_stops()

    def clear_stops(self) -> None:
        """Clears all stop requests."""
        self.stopped_by: str | None = None  # `callback NAME: REASON`
        for callback in self._callbacks.values():
            callback.stop_reason = None

    def hook(self, hook: str) -> Callable[..., None] | None:
        """Returns a function that calls this hook of all callbacks; None if none overrides it."""
        base = getattr(Callback, hook)
        names = [name for name, c in self._callbacks.items() if getattr(type(c), hook) != base]
        return partial(self._call, hook, names) if names else None

    def _call(self, hook: str, names: Sequence[str], *arguments: object) -> None:
        for name in names:
            if name in self._failed and hook != "on_end":
                continue  # it would raise again, before the last checkpoint is saved
            try:
                with _user_errors(name, hook):
                    getattr(self._callbacks[name], hook)(*arguments)
            except BorderError:
                self._failed.add(name)
                raise
            self._note_stop(name)

    def _note_stop(self, name: str) -> None:
        reason = self._callbacks[name].stop_reason
        if reason is not None and self.stopped_by is None:
            self.stopped_by = f"callback {name}: {reason}"

    def begin(self, info: RunInfo) -> None:
        """Calls `on_start`, after checking that checkpoints can store the states."""
        self.state_dict()
        self._begun = True
        self._call("on_start", list(self._callbacks), info)

    def end(self, ended: RunEnd) -> None:
        """Calls `on_end` if `begin` was called. Its errors do not hide the failure of a run."""
        if not self._begun:
            return
        try:
            self._call("on_end", list(self._callbacks), ended)
        except RunFailed as error:
            if ended.status == "done":
                raise
            log.error("%s", error)

    def state_dict(self) -> State:
        """Returns copies of the states of all callbacks, and their stop requests."""
        states: State = {}
        for name, callback in self._callbacks.items():
            with _user_errors(name, "state_dict"):
                states[name] = {
                    "state": _copy_state(callback.state_dict()),
                    "stop": callback.stop_reason,
                }
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned, for callbacks that still exist."""
        self.clear_stops()  # perhaps of a damaged checkpoint
        for name, saved in state.items():
            if name in self._callbacks:
                with _user_errors(name, "load_state_dict"):
                    self._callbacks[name].load_state_dict(saved["state"])
                self._callbacks[name].stop_reason = saved["stop"]
                self._note_stop(name)


def _refuse_invalid(name: str, callback: Callback) -> None:
    """Raises ConfigError if the object is no callback, or if it has unknown `on_` methods."""
    if not isinstance(callback, Callback):
        raise ConfigError(f"callback {name} must be an instance of border_cli.Callback")
    for method in dir(callback):
        if method.startswith(("on_", "_on_")) and method not in HOOKS:
            raise ConfigError(f"callback {name}: {unknown('hook', method, HOOKS)}")


@contextmanager
def _user_errors(name: str, hook: str) -> Iterator[None]:
    """Converts an exception of user code in the block to RunFailed, with the failing line."""
    try:
        yield
    except BorderError:
        raise
    except Exception as error:
        raise RunFailed(
            f"callback {name} failed in {hook}: {place_of(error)}",
            f"\n{''.join(traceback.format_exception(error))}",
        ) from error


def _copy_state(value: Any) -> Any:
    """Copies a state, so that it does not change while a checkpoint is written."""
    if isinstance(value, SAVED):
        return copy.copy(value)
    if isinstance(value, list):
        return [_copy_state(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _copy_state(item) for key, item in value.items()}
    kinds = "numbers, strings, numpy arrays, and lists and dicts of these"
    raise TypeError(f"a checkpoint can store {kinds}, got {value!r}")
