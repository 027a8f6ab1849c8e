"""The recipe from which every life of an actor is made, in whichever thread it shall live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from border_cli.actor_manager.actor import Actor
from border_cli.actor_manager.proxy import ReplayBufferProxy
from border_cli.actor_manager.weights import WeightSlot
from border_cli.core.config import ActorManagerConfig
from border_cli.core.interfaces import EnvFactory, PolicyFactory, StepProcessor
from border_cli.core.seeding import ActorStream, Branch, derived_seed, generator
from border_cli.core.types import Experience


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """Everything that actors are made of; holds recipes only, so it may cross to other threads."""

    seed: int
    env_factory: EnvFactory
    policy_factory: PolicyFactory
    make_step_processor: Callable[[], StepProcessor]

    def __call__(
        self,
        config: ActorManagerConfig,
        actor_id: int,
        life: int,
        *,
        send: Callable[[Experience], None],
        weights: WeightSlot,
    ) -> Actor:
        """A new actor. Its seeds depend on (seed, actor_id, life) only."""
        path = (Branch.ACTOR, actor_id, life)
        policy = self.policy_factory(
            generator(self.seed, *path, ActorStream.EXPLORATION),
            config.exploration_of(actor_id),
        )
        step_processor = self.make_step_processor()
        env = self.env_factory.make(training=True)
        try:
            return Actor(
                env=env,
                env_seed=derived_seed(self.seed, *path, ActorStream.ENV),
                policy=policy,
                step_processor=step_processor,
                proxy=ReplayBufferProxy(actor_id, config.n_buffer, send),
                weights=weights,
            )
        except BaseException:
            env.close()
            raise
