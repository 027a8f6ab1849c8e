"""All recorders of a run behind one interface; a recorder that fails does not end the run.

Only a `BorderError` does. `Recorder` in `core/output.py` describes what follows a failure.
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
    """Passes rows to every recorder; failures are logged and counted."""

    def __init__(self, recorders: Recorders) -> None:
        self._recorders = recorders
        self.newest: dict[str, float] = {}  # newest value of every metric
        self.failures = 0  # number of failed calls, over all recorders
        # By name of the recorder:
        self._problems: dict[str, str] = {}  # reason why it currently cannot write
        self.switched_off: dict[str, str] = {}  # reason why it was switched off

    @property
    def problem(self) -> str | None:
        """The reason why a recorder currently cannot write; None if all can."""
        return next(iter(self._problems.values()), None)

    def positions(self) -> State:
        """Returns the positions of the recorders, by name, for a checkpoint."""
        positions: dict[str, State] = {}

        def add(recorder: Recorder) -> None:
            position = recorder.position()
            if position is not None:
                positions[recorder.recorder_name] = position

        self._call_all(add)
        return positions

    def rewind(self, positions: Mapping[str, Any]) -> None:
        """Drops the rows after a checkpoint; a recorder without a position retains all rows."""
        for recorder in self._recorders:
            position = positions.get(recorder.recorder_name)
            if position is not None:
                recorder.rewind(position)

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        """Writes one row to every recorder."""
        self.newest.update(metrics)
        for recorder in self._recorders:
            if self._try(recorder, lambda target: target.write(step, metrics, final=final)):
                self._problems.pop(recorder.recorder_name, None)

    def film(self, step: RecordStep, film: Film) -> None:
        """Passes a film to every recorder, or logs why there is none."""
        if film.problem is None:
            self._call_all(lambda recorder: recorder.film(step, film.gif))
        else:
            log.warning("no film of the evaluation at update %d: %s", step.opt_steps, film.problem)

    def show(self, progress: Progress) -> None:
        """Shows the progress in every recorder."""
        self._call_all(lambda recorder: recorder.show(progress))

    def end(self, ended: RunEnd) -> None:
        """Reports to every recorder how the run ended."""
        self._call_all(lambda recorder: recorder.end(ended))

    def close(self) -> None:
        """Closes every recorder, even if some have failed or are switched off."""
        for recorder in self._recorders:
            self._try(recorder, lambda target: target.close(), even_off=True)

    def wait(self) -> None:
        """Waits for uploads that continue after `close`."""
        for recorder in self._recorders:
            self._try(recorder, lambda target: target.wait(), even_off=True)

    def _call_all(self, action: Callable[[Recorder], None]) -> None:
        for recorder in self._recorders:
            self._try(recorder, action)

    def _try(
        self, recorder: Recorder, action: Callable[[Recorder], None], *, even_off: bool = False
    ) -> bool:
        """Returns whether the action succeeded. Re-raises a BorderError, which ends the run."""
        name = recorder.recorder_name
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
