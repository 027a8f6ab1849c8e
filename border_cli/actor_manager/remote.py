"""An actor in a process of its own: what runs there."""

from __future__ import annotations

from dataclasses import dataclass

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.config import ProcessConfig
from border_cli.actor_manager.factory import ActorFactory
from border_cli.actor_manager.lane import (
    ANSWERED,
    ASKED,
    BEATS,
    BUILT,
    CLOSING,
    ENV_STEPS,
    GRANTED,
    LOST,
    MADE,
    PERMISSION,
    RESTARTED,
    WRITTEN,
    Lane,
    wait_for,
)
from border_cli.actor_manager.laps import BLOCKED
from border_cli.actor_manager.notes import LAST, Note, answer
from border_cli.actor_manager.ring_writer import RingWriter
from border_cli.actor_manager.shared_weights import SharedWeightSlot
from border_cli.core.errors import BadStep
from border_cli.core.types import State
from border_cli.process.child import BEGUN, Line
from border_cli.process.recipe import load

TELL_EVERY = 64  # steps between two notes of where the time went


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that a process needs to be an actor; pickled on its way there."""

    config: ProcessConfig
    make_actor: bytes  # pickled, so that what cannot be unpickled is reported like any failure
    actor_id: int
    life: int
    resumed: State | None  # where an earlier process of this very life stood
    lane: Lane
    weights: SharedWeightSlot


def run(recipe: Recipe, line: Line) -> None:
    """The process: builds the actor, steps it as far as its leases go, ends when it is told to."""
    make_actor = load(recipe.make_actor)
    line.say(BEGUN)
    try:
        RemoteActor(recipe, make_actor).run()
    except BadStep as error:
        raise error.of_actor(recipe.actor_id, recipe.lane.actor[ENV_STEPS]) from None


class RemoteActor:
    """Steps one actor and keeps its counters in the lane."""

    def __init__(self, recipe: Recipe, make_actor: ActorFactory) -> None:
        self._lane = recipe.lane
        self._words = recipe.lane.actor
        self._writer = RingWriter(recipe.lane)
        self._past_env_steps = self._words[ENV_STEPS]
        self._past_seconds = list(recipe.lane.seconds)
        self._blocked_s = 0.0  # waited for permission
        self._life = recipe.life
        self._answered = self._words[ANSWERED]
        self._actor: Actor = make_actor(
            recipe.config,
            recipe.actor_id,
            recipe.life,
            send=self._writer.put,
            weights=recipe.weights,
            resumed=recipe.resumed,
            beat=self._replayed,
        )
        # Cut short on its way to where it stood, it leaves what was saved of it as it is.
        self._cut_short = recipe.resumed is not None and bool(self._lane.learner[CLOSING])
        if not self._cut_short:
            self._words[RESTARTED] += self._actor.restarted_episodes
            self._words[BUILT] = 1
        self._beat()

    def _replayed(self) -> bool:
        """One step of the way to where it stood; whether to go on."""
        self._beat()
        return not self._lane.learner[CLOSING]

    def run(self) -> None:
        """Until the learner closes the lane; then sends what is there and notes where it stands."""
        words, learner = self._words, self._lane.learner
        try:
            while not learner[CLOSING]:
                if learner[ASKED] != self._answered:
                    self._answer(learner[ASKED])
                elif words[MADE] < learner[GRANTED]:
                    self._step()
                else:
                    self._wait_for_permission()
            if not self._cut_short:
                self._answer(LAST)
        finally:
            self._actor.close()

    def _answer(self, question: int) -> None:
        self._actor.flush()
        self._tell_seconds()
        words = self._words
        note = Note(
            life=self._life,
            messages=words[WRITTEN],
            env_steps=words[ENV_STEPS],
            lost=words[LOST],
            actor=self._actor.state_dict(),
        )
        answer(self._lane, question, note)
        self._answered = question
        self._beat()

    def _step(self) -> None:
        words = self._words
        words[MADE] += self._actor.step()
        words[ENV_STEPS] = self._past_env_steps + self._actor.env_steps
        words[BEATS] += 1
        if words[BEATS] % TELL_EVERY == 0:
            self._tell_seconds()

    def _tell_seconds(self) -> None:
        seconds = self._lane.seconds
        for section, (past, now) in enumerate(
            zip(self._past_seconds, self._actor.seconds, strict=True)
        ):
            seconds[section] = past + now
        seconds[BLOCKED] += self._blocked_s

    def _wait_for_permission(self) -> None:
        lane = self._lane
        self._actor.flush()  # whoever waits for the learner must not sit on its samples
        self._blocked_s += wait_for(
            lane,
            PERMISSION,
            lambda: (
                bool(lane.learner[CLOSING])
                or lane.actor[MADE] < lane.learner[GRANTED]
                or lane.learner[ASKED] != self._answered
            ),
        )
        self._tell_seconds()
        self._beat()

    def _beat(self) -> None:
        self._words[BEATS] += 1
