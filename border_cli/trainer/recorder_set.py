"""All recorders of a run behind one interface; a recorder that fails does not end the run.

A recorder that cannot write (`OSError`) is tried again with every row. One that raises anything
else is switched off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from border_cli.core.interfaces import Film
from border_cli.core.output import Progress, Recorder, Recorders, RecordStep, RunEnd
from border_cli.core.types import Metrics, State
from border_cli.errors import BorderError, reason_of

log = logging.getLogger(__name__)


class RecorderSet:
    """Hands rows to every recorder; failures are logged and counted."""

    def __init__(self, recorders: Recorders) -> None:
        self._recorders = recorders
        self.newest: dict[str, float] = {}  # of every metric ever written
        self.failures = 0  # how often a recorder could not write, all of them together
        # By the class of a recorder:
        self._problems: dict[str, str] = {}  # why it cannot write at present
        self.switched_off: dict[str, str] = {}  # why

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

        self._each(take)
        return found

    def rewind(self, positions: Mapping[str, Any]) -> None:
        """Drops what was recorded after a checkpoint; a recorder without a position keeps all."""
        for recorder in self._recorders:
            position = positions.get(type(recorder).__name__)
            if position is not None:
                recorder.rewind(position)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """One row to every recorder."""
        self.newest.update(metrics)
        for recorder in self._recorders:
            if self._try(recorder, lambda each: each.write(step, metrics, final=final)):
                self._problems.pop(type(recorder).__name__, None)

    def film(self, step: RecordStep, film: Film) -> None:
        """A film to every recorder; a warning if there is none."""
        if film.problem is None:
            self._each(lambda each: each.film(step, film.gif))
        else:
            log.warning("no film of the evaluation at update %d: %s", step.opt_steps, film.problem)

    def show(self, progress: Progress) -> None:
        """Shows the progress in every recorder."""
        self._each(lambda each: each.show(progress))

    def end(self, ended: RunEnd) -> None:
        """Reports to every recorder how the run ended."""
        self._each(lambda each: each.end(ended))

    def close(self) -> None:
        """Closes every recorder, also after one of them failed or was switched off."""
        for recorder in self._recorders:
            self._try(recorder, lambda each: each.close(), even_off=True)

    def wait(self) -> None:
        """Waits for deliveries that continue after `close`."""
        for recorder in self._recorders:
            self._try(recorder, lambda each: each.wait(), even_off=True)

    def _each(self, action: Callable[[Recorder], None]) -> None:
        for recorder in self._recorders:
            self._try(recorder, action)

    def _try(
        self, recorder: Recorder, action: Callable[[Recorder], None], *, even_off: bool = False
    ) -> bool:
        """Whether it succeeded. Our own errors are raised: they end a run on purpose."""
        name = type(recorder).__name__
        if name in self.switched_off and not even_off:
            return False
        try:
            action(recorder)
            return True
        except BorderError:
            raise
        except OSError as error:
            self.failures += 1
            if name not in self._problems or self.failures % 100 == 0:
                log.error(
                    "%s could not write (%s); training continues, %d failures so far",
                    name, error, self.failures,
                )  # fmt: skip
            self._problems[name] = f"{name} cannot write: {error}"
        except Exception as error:
            self.failures += 1
            self.switched_off[name] = reason_of(error)
            self._problems[name] = f"{name} is switched off: {reason_of(error)}"
            log.exception("%s failed and is switched off; training continues without it", name)
        return False
