"""An actor on another machine: acts for the samples of one call, and returns them.

What it returns is made of few contiguous arrays, however many steps it took. Whatever its
environment raises is part of an answer, with its traceback and the transitions made before.
"""

from __future__ import annotations

import logging
import os
import platform
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Actor, ActorFactory, Message
from border_cli.actor_manager.shared_weights import unpacked
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.rows import concatenate
from border_cli.errors import BadStep
from border_cli.ray.remote import add_import_path
from border_cli.settings.run import ActorManagerConfig
from border_cli.system.start import unpack

MOST_LOGGED: Final = 100  # records per answer
NEVER_FULL: Final = 2**31  # samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The transitions, episodes and counts that one call returned."""

    message: Message | None = None  # what it made, its transitions in one part
    acted_s: float = 0.0  # that the call took here
    seconds: tuple[float, ...] = ()  # of the incarnation so far, by section
    logged: tuple[tuple[str, int, str], ...] = ()  # logger, level, text
    failure: str | None = None  # traceback of what ended the actor
    refusal: BadStep | None = None  # for which the run ends

    @property
    def rows(self) -> int:
        """Samples."""
        return self.message.rows if self.message else 0

    @property
    def env_steps(self) -> int:
        return self.message.env_steps if self.message else 0


class _Records(logging.Handler):
    """Keeps what is logged until the next answer."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.kept) >= MOST_LOGGED:
            return
        try:
            self.kept.append((record.name, record.levelno, self.format(record)))
        except Exception:  # its arguments do not fit: reported on stderr, as everywhere
            self.handleError(record)

    def take(self) -> tuple[tuple[str, int, str], ...]:
        kept, self.kept = self.kept, []
        return tuple(kept)


class RemoteActor:
    """One incarnation; called by the one thread of a process of its own.

    `prepare` imports what it needs, `build` makes its environments, `act` steps them.
    """

    def __init__(
        self,
        packed: bytes,
        config: ActorManagerConfig,
        actor_id: int,
        incarnation: int,
        log_level: int,
        import_path: Sequence[str] = (),
    ) -> None:
        """`import_path`: where modules are found, on the machine of the learner."""
        self._packed = packed
        self._import_path = import_path
        # A call is a message: what it made is sent when it ends.
        self._config = replace(config, n_buffer=NEVER_FULL)
        self._actor_id = actor_id
        self._incarnation = incarnation
        self._log_level = log_level
        self._records = _Records()
        self._actor: Actor | None = None
        self._message: Message | None = None
        self._weights = WeightSlot()

    def prepare(self) -> str:
        """Imports all modules that an actor needs; where it is."""
        root = logging.getLogger()
        root.handlers[:] = [self._records]
        root.setLevel(self._log_level)
        add_import_path(self._import_path)
        self._make_actor: ActorFactory = unpack(self._packed)
        return f"{platform.node()}, process {os.getpid()}"

    def build(self) -> Answer:
        """Makes its environments and its policy."""
        failure = None
        try:
            self._actor = self._make_actor(
                self._config,
                self._actor_id,
                self._incarnation,
                send=self._keep,
                weights=self._weights,
            )
            self._actor.bind_thread()
        except (Exception, SystemExit):
            failure = traceback.format_exc()
        return Answer(failure=failure, logged=self._records.take())

    def _keep(self, message: Message) -> float:
        parts = [concatenate(message.parts)] if message.parts else []
        self._message = replace(message, parts=parts)
        return 0.0

    def act(
        self, samples: int, within_s: float, version: int | None, weights: NDArray[np.uint8] | None
    ) -> Answer:
        """Acts until it has made so many samples, or a step ended after `within_s`."""
        began_s = time.perf_counter()
        actor = self._actor
        if actor is None:
            return Answer()  # it failed in the call before
        failure = refusal = None
        made = 0
        try:
            if version is not None and weights is not None:
                self._weights.publish(unpacked(weights, self._make_actor.weight_forms))
            while made < samples and time.perf_counter() - began_s < within_s:
                made += actor.step()
        except BadStep as error:
            refusal = error.of_actor(self._actor_id, actor.env_steps)
        except (Exception, SystemExit):
            failure = traceback.format_exc()
        self._message = None
        actor.flush()
        if failure or refusal:
            with suppress(Exception):  # it has failed already
                self.close()
        return Answer(
            message=self._message,
            acted_s=time.perf_counter() - began_s,
            seconds=tuple(actor.seconds),
            logged=self._records.take(),
            failure=failure,
            refusal=refusal,
        )

    def close(self) -> None:
        """Closes its environments."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.close()
