"""All callbacks of a run behind one interface: their hooks, their state and their wish to stop."""

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
SAVED = (type(None), bool, int, float, str, np.ndarray, np.generic)  # values in a checkpoint


def named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Callbacks of a caller in Python by the names of their classes, a second one of a class with
    an underscore more."""
    found: dict[str, Callback] = {}
    for each in callbacks:
        name = type(each).__name__
        while name in found:
            name += "_"
        found[name] = each
    return found


class Callbacks:
    """Calls the hooks of callbacks in their order; owned by the learner's thread."""

    def __init__(self, callbacks: Mapping[str, Callback] | None = None) -> None:
        """`callbacks` by their names in messages and checkpoints."""
        self._callbacks = dict(callbacks or {})
        self._begun = False
        for name, each in self._callbacks.items():
            _refuse_unmeant(name, each)
        self.go_on()

    def go_on(self) -> None:
        """Forgets who wished to stop."""
        self.stopped_by: str | None = None  # `callback NAME: REASON`
        for each in self._callbacks.values():
            each.stop_reason = None

    def hook(self, hook: str) -> Callable[..., None] | None:
        """Calls this hook of all callbacks that have it; None where none has."""
        none = getattr(Callback, hook)
        having = [name for name, c in self._callbacks.items() if getattr(type(c), hook) != none]
        return partial(self._call, hook, having) if having else None

    def _call(self, hook: str, having: Sequence[str], *given: object) -> None:
        for name in having:
            with _naming(name, hook):
                getattr(self._callbacks[name], hook)(*given)
            self._note_stop(name)

    def _note_stop(self, name: str) -> None:
        reason = self._callbacks[name].stop_reason
        if reason is not None and self.stopped_by is None:
            self.stopped_by = f"callback {name}: {reason}"

    def begin(self, info: RunInfo) -> None:
        """Tells them that the run begins; a state that no checkpoint can hold is refused now."""
        self.state_dict()
        self._begun = True
        self._call("on_start", list(self._callbacks), info)

    def end(self, ended: RunEnd) -> None:
        """Tells those that have begun how the run ended; what they raise then hides no error."""
        if not self._begun:
            return
        try:
            self._call("on_end", list(self._callbacks), ended)
        except RunFailed as error:
            if ended.status == "done":
                raise
            log.error("%s", error)

    def state_dict(self) -> State:
        """Copies of their states, and who wishes to stop."""
        found: State = {}
        for name, each in self._callbacks.items():
            with _naming(name, "state_dict"):
                found[name] = {"state": _copied(each.state_dict()), "stop": each.stop_reason}
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave, of those that are still there."""
        for name, saved in state.items():
            if name in self._callbacks:
                with _naming(name, "load_state_dict"):
                    self._callbacks[name].load_state_dict(saved["state"])
                self._callbacks[name].stop_reason = saved["stop"]
                self._note_stop(name)


def _refuse_unmeant(name: str, callback: Callback) -> None:
    """Refuses what is no callback, and hooks that nobody would call."""
    if not isinstance(callback, Callback):
        raise ConfigError(f"callback {name} must be an instance of border_cli.Callback")
    for each in dir(callback):
        if each.startswith(("on_", "_on_")) and each not in HOOKS:
            raise ConfigError(f"callback {name}: {unknown('hook', each, HOOKS)}")


@contextmanager
def _naming(name: str, hook: str) -> Iterator[None]:
    """Within the block what code of the user raises ends the run, with its line."""
    try:
        yield
    except BorderError:
        raise
    except Exception as error:
        raise RunFailed(
            f"callback {name} failed in {hook}: {place_of(error)}",
            f"\n{''.join(traceback.format_exception(error))}",
        ) from error


def _copied(value: Any) -> Any:
    """A copy, which stays as it is while it is written."""
    if isinstance(value, SAVED):
        return copy.copy(value)
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _copied(each) for key, each in value.items()}
    kinds = "numbers, texts, numpy arrays, and lists and dicts of these"
    raise TypeError(f"a checkpoint holds {kinds}, got {value!r}")
