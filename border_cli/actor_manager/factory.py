"""The recipe from which every life of an actor is made, in whichever thread it shall live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.proxy import ReplayBufferProxy, Send
from border_cli.actor_manager.shared_weights import ArrayForms
from border_cli.actor_manager.weights import WeightSource
from border_cli.core.config import ActorManagerConfig
from border_cli.core.interfaces import EnvFactory, PolicyFactory, StepProcessor
from border_cli.core.returns import DiscountedReturns
from border_cli.core.seeding import ActorStream, Branch, derived_seed, generator
from border_cli.core.timing import Clock, MonotonicClock
from border_cli.core.types import Beat, State


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """Everything that actors are made of; holds recipes only, so it may cross to other threads
    and processes."""

    seed: int
    env_factory: EnvFactory
    policy_factory: PolicyFactory
    make_step_processor: Callable[[], StepProcessor]
    imports: Sequence[str] = ()  # modules that another process must import first
    clock: Clock = field(default_factory=MonotonicClock)
    weight_forms: ArrayForms = field(default_factory=dict)  # of every snapshot's arrays
    returns_gamma: float | None = None  # of running returns; None: the agent needs none

    def __call__(
        self,
        config: ActorManagerConfig,
        actor_id: int,
        life: int,
        *,
        send: Send,
        weights: WeightSource,
        resumed: State | None = None,
        beat: Beat = lambda: True,
    ) -> Actor:
        """A new actor. Its seeds depend on (seed, actor_id, life) only.

        With `resumed`, the `Actor.state_dict` of this very life, it goes on where that one stood;
        `beat` is called at every step of that, and False once nobody waits for it.
        """
        path = (Branch.ACTOR, actor_id, life)
        policy = self.policy_factory(
            generator(self.seed, *path, ActorStream.EXPLORATION),
            config.exploration_of(actor_id),
        )
        step_processor = self.make_step_processor()
        env = self.env_factory.make(training=True)
        gamma = self.returns_gamma
        returns = None if gamma is None else DiscountedReturns(gamma, env.num_envs)
        try:
            return Actor(
                env=env,
                env_seed=derived_seed(self.seed, *path, ActorStream.ENV),
                policy=policy,
                step_processor=step_processor,
                proxy=ReplayBufferProxy(
                    actor_id, config.n_buffer, send, self.clock, returns=returns
                ),
                weights=weights,
                clock=self.clock,
                resumed=resumed,
                beat=beat,
            )
        except BaseException:
            env.close()
            raise
