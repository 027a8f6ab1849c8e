"""An actor that is made from the state of another one goes on as that one does."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from border_cli.actor_manager.actor import Actor, ActorFactory, Message
from border_cli.actor_manager.config import SerialConfig
from border_cli.actor_manager.weights import WeightSlot
from border_cli.agent.config import DqnConfig, RandomConfig
from border_cli.agent.dqn import Dqn
from border_cli.agent.random import RandomAgent
from border_cli.core.interfaces import Agent
from border_cli.core.rows import columns_of
from border_cli.env.config import GymConfig
from border_cli.env.gym import GymEnvFactory
from border_cli.errors import CheckpointError
from border_cli.step_processor.config import NStepConfig
from border_cli.step_processor.n_step import NStep
from tests.support.case_sampling import sampled
from tests.support.saved_states import reread, same
from tests.support.walk_env import Walk

N_BUFFER = 40


class Made:
    """Actors of one recipe, the messages they send, and the weights that all of them act with."""

    def __init__(
        self, env: GymConfig, *, learns: bool = True, n_steps: int = 3, **settings: Any
    ) -> None:
        factory = GymEnvFactory(env)
        config = {"epsilon": {"initial": 0.5, "steps": 4000}, "hidden": [8], **settings}
        self.agent: Agent = RandomAgent(RandomConfig(), spec=factory.spec, device="cpu", seed=0)
        if learns:
            self.agent = Dqn(DqnConfig(**config), spec=factory.spec, device="cpu", seed=4)
        self._make = ActorFactory(
            seed=3,
            env_factory=factory,
            policy_factory=self.agent.policy_factory,
            make_step_processor=lambda: NStep(
                NStepConfig(n_steps=n_steps), gamma=0.9, num_envs=env.num_envs
            ),
        )
        self.weights = WeightSlot()
        self.config = SerialConfig(n_buffer=N_BUFFER)

    def publish(self, env_steps: int, *, warm_up: bool = False) -> None:
        self.weights.publish(self.agent.snapshot(env_steps=env_steps, warm_up=warm_up))

    def actor(self, resumed: Any = None) -> tuple[Actor, list[Message]]:
        sent: list[Message] = []

        def send(message: Message) -> float:
            sent.append(message)
            return 0.0

        made = self._make(self.config, 1, 2, send=send, weights=self.weights, saved=resumed)
        return made, sent


def described(sent: list[Message]) -> list[Any]:
    """All that the learner sees."""
    messages = [each.experience() for each in sent]
    return [
        [
            [each.actor_id, each.opt_steps, each.env_steps, len(each.transitions)],
            {k: np.ascontiguousarray(v) for k, v in columns_of(each.transitions).items()},
            [[episode.score, episode.length] for episode in each.episodes],
        ]
        for each in messages
    ]


def run(actor: Actor, steps: int) -> list[int]:
    return [actor.step() for _ in range(steps)]


def running(actor: Actor) -> list[int]:
    """Steps of the running episodes."""
    return list(actor.state_dict()["env"]["lengths"])


CART_POLE = {"id": "CartPole-v1", "vectorization": "sync"}
DRIFT = {"id": "border/Walk-v0", "kwargs": {"named": True}, "max_episode_steps": 25}
RECIPES: dict[str, Any] = {
    "cart_pole": (CART_POLE, {}),
    "softmax": (CART_POLE, {"exploration": "softmax"}),
    "dict": (DRIFT, {}),
    "one_step": (DRIFT, {"n_steps": 1}),
    "random": (DRIFT, {"learns": False}),
    "vector": ({**DRIFT, "kwargs": {"named": True, "action": "vector"}}, {"learns": False}),
}


@pytest.mark.parametrize("warm_up", sampled([False, True], every=4), ids=["", "warm-up"])
@pytest.mark.parametrize("num_envs", sampled([1, 3], every=2))
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_actor_sends_what_the_first_one_sends(recipe, num_envs, warm_up):
    env, settings = RECIPES[recipe]
    made = Made(GymConfig(**env, num_envs=num_envs), **settings)
    made.publish(0, warm_up=warm_up)
    actor, sent = made.actor()
    run(actor, 500)
    while not actor.proxy.rows or min(running(actor)) == 0:
        actor.step()  # to the middle of all episodes, and of a message
    state = actor.state_dict()
    before = copy.deepcopy(state)
    resumed, sent_again = made.actor(reread(state))
    assert resumed.restarted_episodes == 0
    assert (resumed.env_steps, resumed.proxy.rows) == (0, actor.proxy.rows)
    assert same(resumed.state_dict(), before)

    sent.clear()
    for opt_steps in range(3):  # with the weights that it had, and with newer ones
        assert run(resumed, 170) == run(actor, 170)
        made.publish(1000 * opt_steps)
    actor.flush()
    resumed.flush()
    assert len(sent) > 5
    assert any(message.episodes for message in sent)
    assert same(described(sent_again), described(sent))
    assert same(resumed.state_dict(), actor.state_dict())
    assert same(state, before)


def test_an_episode_that_began_anew_is_counted_and_its_waiting_rows_are_dropped():
    made = Made(GymConfig(**DRIFT, num_envs=3))
    made.publish(0)
    actor, _ = made.actor()
    run(actor, 200)
    while min(running(actor)) < 2:
        actor.step()
    state = reread(actor.state_dict())
    state["env"]["scores"][1] += 1.0
    resumed, again = made.actor(state)
    assert resumed.restarted_episodes == 1
    assert resumed.proxy.rows == actor.proxy.rows
    before = state["step_processor"]["count"].tolist()
    assert before == [2, 2, 2]
    assert resumed.state_dict()["step_processor"]["count"].tolist() == [2, 0, 2]
    assert running(resumed) == [running(actor)[0], 0, running(actor)[2]]
    while resumed.proxy.rows:
        resumed.step()
    first = again[0].experience().transitions
    new = len(first) - actor.proxy.rows
    assert new > 0
    kept = actor.proxy.state_dict()["columns"]
    assert same(columns_of(first)["reward"][: -new or None], kept["reward"])


@pytest.mark.parametrize("lost", ["env", "policy", "step_processor", "proxy", "opt_steps"])
def test_a_state_that_lacks_a_part_is_refused_and_the_environment_closed(lost):
    made = Made(GymConfig(**DRIFT))
    made.publish(0)
    actor, _ = made.actor()
    state = actor.state_dict()
    del state[lost]
    closed = Walk.closings
    with pytest.raises(CheckpointError, match=rf"state of an actor .*KeyError.*{lost}"):
        made.actor(state)
    assert Walk.closings == closed + 1
