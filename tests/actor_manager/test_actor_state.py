"""An actor built from the saved state of another one continues exactly like it."""

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


class Setup:
    """Builds identical actors that share a slot of weights, and collects their messages."""

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

        actor = self._make(self.config, 1, 2, send=send, weights=self.weights, saved=resumed)
        return actor, sent


def describe(sent: list[Message]) -> list[Any]:
    """Returns the contents of messages as the learner receives them."""
    messages = [message.experience() for message in sent]
    return [
        [
            [message.actor_id, message.opt_steps, message.env_steps, len(message.transitions)],
            {k: np.ascontiguousarray(v) for k, v in columns_of(message.transitions).items()},
            [[episode.score, episode.length] for episode in message.episodes],
        ]
        for message in messages
    ]


def run(actor: Actor, steps: int) -> list[int]:
    return [actor.step() for _ in range(steps)]


def episode_lengths(actor: Actor) -> list[int]:
    """Returns the lengths of the current episodes so far."""
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


@pytest.mark.parametrize("warm_up", sampled([False, True], every=4, ids=["", "warm-up"]))
@pytest.mark.parametrize("num_envs", sampled([1, 3], every=2))
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_actor_sends_what_the_first_one_sends(recipe, num_envs, warm_up):
    env, settings = RECIPES[recipe]
    setup = Setup(GymConfig(**env, num_envs=num_envs), **settings)
    setup.publish(0, warm_up=warm_up)
    actor, sent = setup.actor()
    run(actor, 500)
    while not actor.proxy.rows or min(episode_lengths(actor)) == 0:
        actor.step()  # until all episodes and a message are incomplete
    state = actor.state_dict()
    before = copy.deepcopy(state)
    resumed, sent_again = setup.actor(reread(state))
    assert resumed.restarted_episodes == 0
    assert (resumed.env_steps, resumed.proxy.rows) == (0, actor.proxy.rows)
    assert same(resumed.state_dict(), before)

    sent.clear()
    for opt_steps in range(3):  # first with the old weights, then with newer ones
        assert run(resumed, 170) == run(actor, 170)
        setup.publish(1000 * opt_steps)
    actor.flush()
    resumed.flush()
    assert len(sent) > 5
    assert any(message.episodes for message in sent)
    assert same(describe(sent_again), describe(sent))
    assert same(resumed.state_dict(), actor.state_dict())
    assert same(state, before)


def test_an_episode_that_began_anew_is_counted_and_its_waiting_rows_are_dropped():
    setup = Setup(GymConfig(**DRIFT, num_envs=3))
    setup.publish(0)
    actor, _ = setup.actor()
    run(actor, 200)
    while min(episode_lengths(actor)) < 2:
        actor.step()
    state = reread(actor.state_dict())
    state["env"]["scores"][1] += 1.0
    resumed, sent = setup.actor(state)
    assert resumed.restarted_episodes == 1
    assert resumed.proxy.rows == actor.proxy.rows
    before = state["step_processor"]["count"].tolist()
    assert before == [2, 2, 2]
    assert resumed.state_dict()["step_processor"]["count"].tolist() == [2, 0, 2]
    assert episode_lengths(resumed) == [episode_lengths(actor)[0], 0, episode_lengths(actor)[2]]
    while resumed.proxy.rows:
        resumed.step()
    first = sent[0].experience().transitions
    new = len(first) - actor.proxy.rows
    assert new > 0
    unsent = actor.proxy.state_dict()["columns"]
    assert same(columns_of(first)["reward"][: -new or None], unsent["reward"])


@pytest.mark.parametrize("lost", ["env", "policy", "step_processor", "proxy", "opt_steps"])
def test_a_state_that_lacks_a_part_is_refused_and_the_environment_closed(lost):
    setup = Setup(GymConfig(**DRIFT))
    setup.publish(0)
    actor, _ = setup.actor()
    state = actor.state_dict()
    del state[lost]
    closings = Walk.closings
    with pytest.raises(CheckpointError, match=rf"state of an actor .*KeyError.*{lost}"):
        setup.actor(state)
    assert Walk.closings == closings + 1
