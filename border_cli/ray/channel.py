"""The channel between the learner and a cluster's broker: counters and one ring for all actors.

The broker writes the messages of the actors. Like the ring (`message_ring.py`), the channel has no
locks, and every word has a single writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from border_cli.actor_manager.mapped import Mapped
from border_cli.actor_manager.message_ring import MessageRing
from border_cli.core.spaces import EnvSpec
from border_cli.core.timing import ACTOR_SECTIONS
from border_cli.core.types import Column
from border_cli.system.shared_memory import WakePipe, floats, integers

# Words written by the learner.
CLOSING: Final = 0  # 1 if the broker should finish the calls in progress and end the actors
LEARNER_WAITS: Final = 1  # 1 if the broker should wake the learner after a message
LAST: Final = 2  # 1 if the limit has stopped rising, perhaps only for now
LEAVING: Final = 3  # 1 if the broker may leave the cluster once all actors have ended
LEARNER_WORDS: Final = 8

# Words written by the broker.
GRANTED: Final = 0  # samples that count towards the limit
BEATS: Final = 1
DRAINED: Final = 2  # 1 if no more messages will arrive
ACTING: Final = 3  # number of acting actors
SPACE_WAITS: Final = 4  # 1 if the broker waits for space in the ring
BROKER_WORDS: Final = 8

# Words of each actor, written by the broker.
ROWS: Final = 0  # samples received from the actor
SURPLUS: Final = 1  # env steps received, minus samples received
LOST: Final = 2  # samples that will never be received
RESTARTS: Final = 3
INCARNATIONS: Final = 4  # number of incarnations started in this attempt
ACTOR_WORDS: Final = 8

NETWORK: Final = ("call", "transfer", "queue")  # components of the duration of a call


class BrokerChannel(Mapped):
    """The memory and pipes shared with the broker; the manager owns and closes them."""

    pickled = ("pipe", "learner_pipe", "ring")

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        num_actors: int,
        extras: Sequence[Column] = (),
        returns: bool = False,
    ) -> None:
        """`capacity`: rows in the ring; `returns`: whether messages include running returns."""
        self.pipe = WakePipe()  # wakes the broker
        self.learner_pipe = WakePipe()
        int64, float64 = np.dtype(np.int64), np.dtype(np.float64)
        self.ring = MessageRing(
            spec,
            capacity=capacity,
            messages=64 + 4 * num_actors,
            extras=extras,
            returns=returns,
            more=[
                (int64, (LEARNER_WORDS,)),
                (int64, (BROKER_WORDS,)),
                (int64, (num_actors, ACTOR_WORDS)),
                (float64, (1,)),
                (float64, (num_actors, len(ACTOR_SECTIONS))),
                (float64, (len(NETWORK),)),
            ],
        )
        self._map()

    def _map(self) -> None:
        learner, broker, actors, permitted, seconds, network = self.ring.more
        self.learner, self.broker = integers(learner), integers(broker)
        self.actors = [integers(words) for words in actors]  # by actor id
        self.permitted = floats(permitted)  # [0]: limit on the total number of samples
        self.seconds = [floats(sections) for sections in seconds]  # by actor id
        self.network = floats(network)

    def close(self) -> None:
        """Releases the memory and the pipes; the counters can still be read."""
        self.ring.close()
        self.pipe.close()
        self.learner_pipe.close()
