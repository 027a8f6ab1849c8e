"""The channel between the learner and the broker of a cluster: counters, and a ring for all actors.

The broker writes what the actors returned. As in the ring (`message_ring.py`) there is no lock, and
every word has one writer.
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

# Words that the learner writes.
CLOSING: Final = 0  # 1: return what is under way and end
LEARNER_WAITS: Final = 1  # 1: wake the learner for news
LAST: Final = 2  # 1: the permission no longer grows
LEAVING: Final = 3  # 1: leave the cluster, once all has ended
LEARNER_WORDS: Final = 8

# Words that the broker writes.
GRANTED: Final = 0  # samples of the permission that are used up
BEATS: Final = 1
DRAINED: Final = 2  # 1: nothing more will arrive
ACTING: Final = 3  # actors
SPACE_WAITS: Final = 4  # 1: it waits for space in the ring
BROKER_WORDS: Final = 8

# Words of each actor, which the broker writes.
ROWS: Final = 0  # samples that arrived
SURPLUS: Final = 1  # env steps that arrived, less the samples that arrived with them
LOST: Final = 2  # samples that never will arrive
RESTARTS: Final = 3
INCARNATIONS: Final = 4  # that were started in this attempt
ACTOR_WORDS: Final = 8

NETWORK: Final = ("call", "transfer", "queue")  # where the time of calls goes


class BrokerChannel(Mapped):
    """Owned by the manager, which closes it."""

    crossing = ("pipe", "learner_pipe", "ring")

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        num_actors: int,
        extras: Sequence[Column] = (),
        returns: bool = False,
    ) -> None:
        """`capacity`: rows of its ring; `returns`: its messages carry running returns."""
        self.pipe = WakePipe()  # wakes the broker
        self.learner_pipe = WakePipe()
        whole, real = np.dtype(np.int64), np.dtype(np.float64)
        self.ring = MessageRing(
            spec,
            capacity=capacity,
            messages=64 + 4 * num_actors,
            extras=extras,
            returns=returns,
            more=[
                (whole, (LEARNER_WORDS,)),
                (whole, (BROKER_WORDS,)),
                (whole, (num_actors, ACTOR_WORDS)),
                (real, (1,)),
                (real, (num_actors, len(ACTOR_SECTIONS))),
                (real, (len(NETWORK),)),
            ],
        )
        self._map()

    def _map(self) -> None:
        learner, broker, actors, permitted, seconds, network = self.ring.more
        self.learner, self.broker = integers(learner), integers(broker)
        self.actors = [integers(each) for each in actors]  # by actor id
        self.permitted = floats(permitted)  # [0]: samples in all
        self.seconds = [floats(each) for each in seconds]  # by actor id
        self.network = floats(network)

    def close(self) -> None:
        """Gives up its memory and its pipes; its counters can still be read."""
        self.ring.close()
        self.pipe.close()
        self.learner_pipe.close()
