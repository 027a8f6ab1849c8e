"""An actor on another machine, which collects and returns the samples of one call at a time.

A result consists of a few contiguous arrays, regardless of the number of steps. If the environment
raises an exception, the result contains the traceback and the transitions collected before it.
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
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from border_cli.actor_manager.actor import Actor, ActorFactory, Message
from border_cli.actor_manager.shared_weights import unpack_snapshot
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.rows import concatenate
from border_cli.errors import BadStep
from border_cli.ray.remote import add_import_path
from border_cli.settings.run import ActorManagerConfig
from border_cli.system.start import unpack

MAX_RECORDS: Final = 100  # maximum number of log records per result
NEVER_FULL: Final = 2**31  # samples, more than a call collects


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of one call."""

    message: Message | None = None  # samples and episodes, with all transitions in one part
    acted_s: float = 0.0  # duration of the call in the actor
    seconds: tuple[float, ...] = ()  # seconds per section since the incarnation started
    logged: tuple[tuple[str, int, str], ...] = ()  # (logger, level, text) of each record
    failure: str | None = None  # traceback of the exception that ended the actor
    refusal: BadStep | None = None  # error that ends the run

    @property
    def rows(self) -> int:
        """Number of samples."""
        return self.message.rows if self.message else 0

    @property
    def env_steps(self) -> int:
        return self.message.env_steps if self.message else 0


class RemoteActor:
    """One incarnation of an actor, called by the only thread of its process.

    `prepare` imports modules, `build` creates the environments, and `act` steps them.
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
        """`import_path`: the module search path of the learner's machine."""
        self._packed = packed
        self._import_path = import_path
        # Each call produces one message, at its end, so the buffer must never be full.
        self._config = replace(config, n_buffer=NEVER_FULL)
        self._actor_id = actor_id
        self._incarnation = incarnation
        self._log_level = log_level
        self._records: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._actor: Actor | None = None
        self._message: Message | None = None
        self._weights = WeightSlot()

    def prepare(self) -> str:
        """Imports all modules that the actor needs; returns the host and the process id."""
        root = logging.getLogger()
        root.handlers[:] = [QueueHandler(self._records)]
        root.setLevel(self._log_level)
        add_import_path(self._import_path)
        self._make_actor: ActorFactory = unpack(self._packed)
        return f"{platform.node()}, process {os.getpid()}"

    def build(self) -> CallResult:
        """Builds the environments and the policy."""
        failure = refusal = None
        try:
            self._actor = self._make_actor(
                self._config,
                self._actor_id,
                self._incarnation,
                send=self._store,
                weights=self._weights,
            )
            self._actor.bind_thread()
        except BadStep as error:
            refusal = error.of_actor(self._actor_id, 0)
        except (Exception, SystemExit):
            failure = traceback.format_exc()
        return CallResult(failure=failure, refusal=refusal, logged=self._take_records())

    def _take_records(self) -> tuple[tuple[str, int, str], ...]:
        """Returns the first log records since the last call, with their formatted texts."""
        records = [self._records.get() for _ in range(self._records.qsize())]
        return tuple((entry.name, entry.levelno, entry.msg) for entry in records[:MAX_RECORDS])

    def _store(self, message: Message) -> float:
        parts = [concatenate(message.parts)] if message.parts else []
        self._message = replace(message, parts=parts)
        return 0.0

    def act(
        self, samples: int, within_s: float, version: int | None, weights: NDArray[np.uint8] | None
    ) -> CallResult:
        """Acts until it has collected `samples` samples or `within_s` seconds have passed."""
        began_s = time.perf_counter()
        actor = self._actor
        if actor is None:
            return CallResult()  # the actor failed in an earlier call
        failure = refusal = None
        collected = 0
        try:
            if version is not None and weights is not None:
                self._weights.publish(unpack_snapshot(weights, self._make_actor.weight_forms))
            while collected < samples and time.perf_counter() - began_s < within_s:
                collected += actor.step()
        except BadStep as error:
            refusal = error.of_actor(self._actor_id, actor.env_steps)
        except (Exception, SystemExit):
            failure = traceback.format_exc()
        self._message = None
        actor.flush()
        if failure or refusal:
            with suppress(Exception):  # the actor has already failed
                self.close()
        return CallResult(
            message=self._message,
            acted_s=time.perf_counter() - began_s,
            seconds=tuple(actor.seconds),
            logged=self._take_records(),
            failure=failure,
            refusal=refusal,
        )

    def close(self) -> None:
        """Closes the environments."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.close()
