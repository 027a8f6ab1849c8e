"""All recorders of a run behind one interface; a recorder that fails does not end the run.

A recorder that cannot write (`OSError`) is tried again with every row. One that raises anything
else is switched off after `MAX_FAILURES` failures in a row of one method: `show` that succeeds
between two rows does not hide that `write` never does.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from border_cli.core.errors import BorderError
from border_cli.core.output import MAX_FAILURES, Progress, Recorder, Recorders, RecordStep, RunEnd
from border_cli.core.timing import Clock
from border_cli.core.types import Metrics, State

log = logging.getLogger(__name__)

SHOW_EVERY_S = 0.2


class Recording:
    """Hands rows to every recorder; failures are logged and counted."""

    def __init__(self, recorders: Recorders, clock: Clock) -> None:
        self._recorders = recorders
        self._clock = clock
        self._last_shown_s = -SHOW_EVERY_S
        self.newest: dict[str, float] = {}  # of every metric ever written
        self._failures: Counter[int] = Counter()  # id(recorder) -> how often
        self._of_others: dict[str, Any] = {}  # positions of recorders that this attempt lacks
        self._problems: dict[int, str] = {}  # id(recorder) -> why it cannot write at present
        # (id(recorder), method) -> failures other than OSError
        self._in_a_row: Counter[tuple[int, str]] = Counter()
        self.switched_off: dict[str, str] = {}  # class of a recorder -> its last failure
        self._off: set[int] = set()  # id(recorder)

    @property
    def failures(self) -> int:
        """How often a recorder could not write, all of them together."""
        return self._failures.total()

    @property
    def problem(self) -> str | None:
        """Why a recorder cannot write at present; None where all can."""
        return next(iter(self._problems.values()), None)

    def positions(self) -> State:
        """How far every recorder's rows reach, by its class, for a checkpoint."""
        found: dict[str, State] = {}

        def take(recorder: Recorder) -> None:
            position = recorder.position()
            if position is not None:
                found[type(recorder).__name__] = position

        for recorder in self._recorders:
            self._try(recorder, "position", take)
        return {**self._of_others, **found}

    def rewind(self, positions: Mapping[str, Any]) -> None:
        """Drops what was recorded after a checkpoint; a recorder without a position keeps all."""
        ours = {type(each).__name__ for each in self._recorders}
        self._of_others = {name: at for name, at in positions.items() if name not in ours}
        for recorder in self._recorders:
            position = positions.get(type(recorder).__name__)
            if position is not None:
                recorder.rewind(position)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """One row to every recorder."""
        self.newest.update(metrics)
        for recorder in self._recorders:
            if self._try(recorder, "write", lambda each: each.write(step, metrics, final=final)):
                self._problems.pop(id(recorder), None)

    def film(self, step: RecordStep, gif: bytes) -> None:
        """A film to every recorder."""
        for recorder in self._recorders:
            self._try(recorder, "film", lambda each: each.film(step, gif))

    def due(self, now_s: float) -> bool:
        """Whether progress should be shown again."""
        return now_s - self._last_shown_s >= SHOW_EVERY_S

    def show(self, progress: Progress) -> None:
        """Shows the progress in every recorder."""
        self._last_shown_s = self._clock.now_s()
        for recorder in self._recorders:
            self._try(recorder, "show", lambda each: each.show(progress))

    def end(self, ended: RunEnd) -> None:
        """Reports to every recorder how the run ended."""
        for recorder in self._recorders:
            self._try(recorder, "end", lambda each: each.end(ended))

    def close(self) -> None:
        """Closes every recorder, also after one of them failed."""
        self._off.clear()  # a recorder that was switched off still has to release what it holds
        with ExitStack() as stack:
            for recorder in reversed(self._recorders):
                stack.callback(self._try, recorder, "close", lambda each: each.close())

    def _try(self, recorder: Recorder, method: str, action: Callable[[Recorder], None]) -> bool:
        """Whether it succeeded. Our own errors are raised: they end a run on purpose."""
        if id(recorder) in self._off:
            return False
        try:
            action(recorder)
        except OSError as error:
            self._could_not_write(recorder, error)
        except BorderError:
            raise
        except Exception as error:
            self._failed(recorder, method, error)
        else:
            self._in_a_row.pop((id(recorder), method), None)
            return True
        return False

    def _could_not_write(self, recorder: Recorder, error: OSError) -> None:
        self._problems[id(recorder)] = f"{type(recorder).__name__} cannot write: {error}"
        self._failures[id(recorder)] += 1
        failures = self._failures[id(recorder)]
        if failures == 1 or failures % 100 == 0:
            log.error(
                "%s could not write (%s); training continues, %d failures so far",
                type(recorder).__name__, error, failures,
            )  # fmt: skip

    def _failed(self, recorder: Recorder, method: str, error: Exception) -> None:
        name, reason = type(recorder).__name__, _reason(error)
        self._failures[id(recorder)] += 1
        self._in_a_row[id(recorder), method] += 1
        self._problems[id(recorder)] = f"{name} failed: {reason}"
        if self._in_a_row[id(recorder), method] == 1:
            log.error("%s failed (%s); training continues", name, reason, exc_info=error)
        elif self._in_a_row[id(recorder), method] == MAX_FAILURES:
            self._off.add(id(recorder))
            self.switched_off[name] = reason
            self._problems[id(recorder)] = f"{name} is switched off: {reason}"
            log.error(
                "%s failed %d times in a row and is switched off (%s); training continues "
                "without it", name, MAX_FAILURES, reason,
            )  # fmt: skip


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
