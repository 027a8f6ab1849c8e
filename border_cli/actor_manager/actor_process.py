"""The main function of an actor's process.

The process is forked from Python's fork server, which has imported what actors need, and receives a
picklable recipe. It has one BLAS thread and a lower priority (`actor_manager.nice`), so that
sampling uses the CPU time that learning leaves. Signals, logging and the end of the parent are the
affair of `process/child.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.actor_manager.actor import BLOCKED, Actor, ActorFactory
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.shared_channel import (
    BEATS,
    BUDGET,
    CLOSING,
    ENV_STEPS,
    GRANTED,
    MADE,
    ChannelWriter,
    SharedChannel,
    wait_for,
)
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.errors import BadStep
from border_cli.system.child import READY, Pipe
from border_cli.system.start import unpack

REPORT_EVERY = 64  # steps between two reports of where the time went


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that a process needs to be an actor; pickled on its way there."""

    config: ProcessConfig
    make_actor: bytes  # packed, so that what cannot be unpickled is reported like any failure
    actor_id: int
    incarnation: int
    channel: SharedChannel
    weights: SharedWeightSlot


def run(recipe: Recipe, pipe: Pipe) -> None:
    """The process: builds the actor, then steps it while its budget lasts, until it shall end."""
    make_actor: ActorFactory = unpack(recipe.make_actor)
    pipe.send(READY)
    try:
        ActorProcess(recipe, make_actor).run()
    except BadStep as error:
        raise error.of_actor(recipe.actor_id, recipe.channel.actor[ENV_STEPS]) from None


class ActorProcess:
    """Steps one actor and keeps its counters in the shared channel."""

    def __init__(self, recipe: Recipe, make_actor: ActorFactory) -> None:
        self._channel = recipe.channel
        self._words = recipe.channel.actor
        self._past_env_steps = self._words[ENV_STEPS]  # of earlier incarnations
        self._past_seconds = list(recipe.channel.seconds)
        self._blocked_s = 0.0  # waited for the rate limiter
        self._actor: Actor = make_actor(
            recipe.config,
            recipe.actor_id,
            recipe.incarnation,
            send=ChannelWriter(recipe.channel).send,
            weights=recipe.weights,
        )
        self._actor.bind_thread()
        self._words[BEATS] += 1

    def run(self) -> None:
        """Until the learner closes the channel; then sends what was gathered."""
        words, learner = self._words, self._channel.learner
        try:
            while not learner[CLOSING]:
                if words[MADE] < learner[GRANTED]:
                    self._step()
                else:
                    self._wait_for_budget()
            self._actor.flush()
            self._report_seconds()
        finally:
            self._actor.close()

    def _step(self) -> None:
        words = self._words
        made = self._actor.step()
        words[ENV_STEPS] = self._past_env_steps + self._actor.env_steps  # first: see `counts`
        words[MADE] += made
        words[BEATS] += 1
        if words[BEATS] % REPORT_EVERY == 0:
            self._report_seconds()

    def _report_seconds(self) -> None:
        seconds = self._channel.seconds
        for section, (past, now) in enumerate(
            zip(self._past_seconds, self._actor.seconds, strict=True)
        ):
            seconds[section] = past + now
        seconds[BLOCKED] += self._blocked_s

    def _wait_for_budget(self) -> None:
        channel = self._channel
        self._actor.flush()  # an actor that waits for the learner must not keep samples
        self._blocked_s += wait_for(
            channel,
            BUDGET,
            lambda: (
                bool(channel.learner[CLOSING]) or channel.actor[MADE] < channel.learner[GRANTED]
            ),
        )
        self._report_seconds()
        self._words[BEATS] += 1
