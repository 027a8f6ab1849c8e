"""How often an actor may fail, and how long it pauses before its next life."""

from __future__ import annotations

from border_cli.core.errors import ActorCrashed

FIRST_BACK_OFF_S = 0.1
LONGEST_BACK_OFF_S = 5.0
_DOUBLINGS = 10  # more than enough for the longest; some hundred more and a float overflows


class Restarts:
    """The budget of one actor; owned by whoever restarts it.

    A run that was resumed has a fresh budget: `before` restarts are counted, and cost nothing.
    """

    def __init__(self, actor_id: int, most: int, *, before: int = 0) -> None:
        self._actor_id = actor_id
        self.most = most
        self._before = before
        self._first_traceback: str | None = None
        self._since_delivery = 0  # failures since the last message that arrived
        self.made = 0  # since the run was started or resumed

    @property
    def total(self) -> int:
        """Of the whole run."""
        return self._before + self.made

    def delivered(self) -> None:
        """Samples of it arrived: the next pause is the shortest again."""
        self._since_delivery = 0

    def failed(self, text: str) -> float:
        """Takes the traceback of a failure; returns the pause before the next life, in seconds.

        Raises `ActorCrashed` with the first traceback once the budget is used up.
        """
        self._first_traceback = self._first_traceback or text
        if self.made >= self.most:
            raise ActorCrashed(self._actor_id, self.most, self._first_traceback)
        self.made += 1
        delay_s = min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0**self._since_delivery)
        self._since_delivery = min(self._since_delivery + 1, _DOUBLINGS)
        return delay_s
