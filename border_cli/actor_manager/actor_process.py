"""The main function of an actor process.

`process.py` describes how it is started. `system/child.py` handles signals, logging and the exit of
the parent process.
"""

from __future__ import annotations

from border_cli.actor_manager.actor import BLOCKED, Actor, ActorFactory
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.shared_channel import (
    BEATS,
    BUDGET,
    CLOSING,
    COLLECTED,
    ENV_STEPS,
    GRANTED,
    ChannelWriter,
    SharedChannel,
    wait_for,
)
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.errors import BadStep
from border_cli.system.child import READY, Pipe
from border_cli.system.start import unpack

REPORT_EVERY = 64  # steps between two updates of the shared seconds per section


def run(
    config: ProcessConfig,
    packed: bytes,
    actor_id: int,
    incarnation: int,
    channel: SharedChannel,
    weights: SharedWeightSlot,
    pipe: Pipe,
) -> None:
    """Runs the process: builds the actor and steps it until the learner closes the channel.

    `packed` is a pickled `ActorFactory`, so that the process reports unpickling errors.
    """
    make_actor: ActorFactory = unpack(packed)
    pipe.send(READY)
    try:
        send = ChannelWriter(channel).send
        actor = make_actor(config, actor_id, incarnation, send=send, weights=weights)
        actor.bind_thread()
        ActorProcess(channel, actor).run()
    except BadStep as error:
        raise error.of_actor(actor_id, channel.actor[ENV_STEPS]) from None


class ActorProcess:
    """The loop that steps one actor and updates its counters in the shared channel."""

    def __init__(self, channel: SharedChannel, actor: Actor) -> None:
        self._channel = channel
        self._words = channel.actor
        self._past_env_steps = self._words[ENV_STEPS]  # total of earlier incarnations
        self._past_seconds = list(channel.seconds)
        self._blocked_s = 0.0  # seconds spent waiting for the rate limiter
        self._actor = actor
        self._words[BEATS] += 1

    def run(self) -> None:
        """Steps the actor until the learner closes the channel, then sends the last samples."""
        words, learner = self._words, self._channel.learner
        try:
            while not learner[CLOSING]:
                if words[COLLECTED] < learner[GRANTED]:
                    self._step()
                else:
                    self._wait_for_budget()
            self._actor.flush()
            self._report_seconds()
        finally:
            self._actor.close()

    def _step(self) -> None:
        words = self._words
        num_samples = self._actor.step()
        # Env steps first: see `SharedChannel.counts`.
        words[ENV_STEPS] = self._past_env_steps + self._actor.env_steps
        words[COLLECTED] += num_samples
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
        self._actor.flush()  # a waiting actor must not hold back samples
        self._blocked_s += wait_for(
            channel,
            BUDGET,
            lambda: (
                bool(channel.learner[CLOSING])
                or channel.actor[COLLECTED] < channel.learner[GRANTED]
            ),
        )
        self._report_seconds()
        self._words[BEATS] += 1
