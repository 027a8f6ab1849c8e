"""Actors, which step a policy in environments and send messages to the learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from border_cli.actor_manager.weights import ArrayForms, WeightSource
from border_cli.core.interfaces import Env, EnvFactory, Policy, PolicyFactory, StepProcessor
from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.rows import columns_of, concatenate, copy_rows, transitions_of
from border_cli.core.seeding import ActorStream, Branch, derived_seed, generator
from border_cli.core.timing import ACTOR_SECTIONS, Clock, MonotonicClock
from border_cli.core.types import (
    EPISODE,
    Array,
    Beat,
    Column,
    Episode,
    Experience,
    State,
    Step,
    Transitions,
)
from border_cli.errors import CheckpointError
from border_cli.settings.run import ActorManagerConfig

ACT, ENV_STEP, PROCESS, SEND, BLOCKED = range(len(ACTOR_SECTIONS))

# Only one step in `TIMED_EVERY` is timed and extrapolated, because reading the clock would add
# several percent to a short step. A prime number avoids aliasing with other periodic work.
TIMED_EVERY: Final = 17

_NO_ROWS = Transitions(
    obs=np.empty(0, np.float32),
    action=np.empty(0, np.int64),
    reward=np.empty(0, np.float32),
    discount=np.empty(0, np.float32),
    next_obs=np.empty(0, np.float32),
)


class StepTimer:
    """Seconds that one actor spends per section; owned by the thread that steps the actor."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = [0.0] * len(ACTOR_SECTIONS)
        self._clock = clock
        self._countdown = 1  # the first step is timed
        self._since_s = 0.0

    def start(self) -> bool:
        """Starts a step and returns whether the step is timed."""
        self._countdown -= 1
        if self._countdown:
            return False
        self._countdown = TIMED_EVERY
        self._since_s = self._clock.now_s()
        return True

    def record(self, section: int, *, less_s: float = 0.0) -> None:
        """Adds `TIMED_EVERY` times the time since the last call, less `less_s`, to a section."""
        now_s = self._clock.now_s()
        self.seconds[section] += TIMED_EVERY * max(0.0, now_s - self._since_s - less_s)
        self._since_s = now_s


@dataclass(frozen=True, kw_only=True)  # without slots, which would be pickled slowly
class Message:
    """A message from an actor, with its transitions still in one part per step.

    The parts are copied only once, when they are joined in the memory that the learner reads.
    """

    actor_id: int
    opt_steps: int  # update count of the weights used in the last step
    env_steps: int
    parts: list[Transitions]
    rows: int  # number of rows in all parts
    episodes: tuple[Episode, ...]
    returns: tuple[Moments, ...] = ()

    def experience(self) -> Experience:
        """Returns the message with its parts concatenated."""
        return Experience(
            actor_id=self.actor_id,
            opt_steps=self.opt_steps,
            env_steps=self.env_steps,
            transitions=concatenate(self.parts) if self.parts else _NO_ROWS,
            episodes=self.episodes,
            returns=self.returns,
        )


def copy_experience(message: Experience) -> Experience:
    """Returns the message with a copy of its transitions."""
    return replace(message, transitions=copy_rows(message.transitions))


Send: TypeAlias = Callable[[Message], float]  # returns the seconds spent waiting for space


class ReplayBufferProxy:
    """A buffer that sends its transitions once there are at least `n_buffer`; owned by an actor.

    If the agent needs running `returns`, each message also includes those of its env steps.
    """

    def __init__(
        self,
        actor_id: int,
        n_buffer: int,
        send: Send,
        clock: Clock,
        returns: DiscountedReturns | None = None,
    ) -> None:
        self._actor_id = actor_id
        self._n_buffer = n_buffer
        self._send = send
        self._clock = clock
        self.returns = returns
        self._parts: list[Transitions] = []
        self._episodes: list[Episode] = []
        self._env_steps = 0
        self.rows = 0  # transitions not yet sent
        self.sent_s = 0.0  # seconds spent sending
        self.blocked_s = 0.0  # seconds spent waiting for space

    def push(
        self,
        transitions: Transitions,
        *,
        env_steps: int,
        episodes: tuple[Episode, ...],
        opt_steps: int,
    ) -> None:
        """Adds the result of one step; `opt_steps` is the update count of the weights used."""
        self._env_steps += env_steps
        if episodes:
            self._episodes.extend(episodes)
        rows = len(transitions)
        if rows:
            self._parts.append(transitions)
            self.rows += rows
            if self.rows >= self._n_buffer:
                self.flush(opt_steps)

    def flush(self, opt_steps: int) -> None:
        """Sends all buffered data, if there is any. May block until there is space."""
        if not self._env_steps:
            return
        message = Message(
            actor_id=self._actor_id,
            opt_steps=opt_steps,
            env_steps=self._env_steps,
            parts=self._parts,
            rows=self.rows,
            episodes=tuple(self._episodes),
            returns=() if self.returns is None else self.returns.take(),
        )
        began_s = self._clock.now_s()
        blocked_s = self._send(message)  # if this raises, the rows are later counted as lost
        self.blocked_s += blocked_s
        self.sent_s += max(0.0, self._clock.now_s() - began_s - blocked_s)
        self._parts, self._episodes = [], []
        self._env_steps = self.rows = 0

    def state_dict(self) -> State:
        """Returns the transitions, env steps and episodes that have not been sent."""
        state = {
            "columns": columns_of(concatenate(self._parts)) if self._parts else None,
            "env_steps": self._env_steps,
            "episodes": [episode.numbers() for episode in self._episodes],
        }
        if self.returns is not None:
            state["returns"] = self.returns.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the buffered data with a state from `state_dict`."""
        columns = state["columns"]
        self._parts = [] if columns is None else [transitions_of(columns)]
        self.rows = sum(map(len, self._parts))
        self._env_steps = state["env_steps"]
        self._episodes = [Episode.of(numbers) for numbers in state["episodes"]]
        if self.returns is not None:
            self.returns.load_state_dict(state["returns"])


class ActorCounts(NamedTuple):
    """Counters of one incarnation."""

    env_steps: int = 0
    restarted_episodes: int = 0
    unsent: int = 0  # transitions collected and not sent yet
    seconds: Sequence[float] = ()  # in the order of `ACTOR_SECTIONS`


NO_COUNTS: Final = ActorCounts()


class Actor:
    """A policy that acts in its environments, one step at a time.

    Threads and processes call `step` in a loop; the serial manager and the tests call it directly.
    Actors share no state. An actor is owned by the thread that created it.

    Given `saved`, the `state_dict` of an actor with the same seeds, the new actor continues the
    saved episodes; its counters of steps and seconds start at 0.
    """

    def __init__(
        self,
        *,
        env: Env,
        env_seed: int,
        policy: Policy,
        step_processor: StepProcessor,
        proxy: ReplayBufferProxy,
        weights: WeightSource,
        clock: Clock,
        gives_extras: bool = False,
        saved: Mapping[str, Any] | None = None,
        beat: Beat = lambda: None,
    ) -> None:
        """`gives_extras`: whether the agent needs columns that the policy returns with actions."""
        self._gives_extras = gives_extras
        self._env = env
        self._policy = policy
        self._step_processor = step_processor
        self._weights = weights
        self._version = 0
        self._opt_steps = 0
        self._timer = StepTimer(clock)
        self.proxy = proxy
        self._returns = proxy.returns
        # Checked once and not in every step, because most policies have no per-episode state.
        self._tracks_episodes = (
            self._returns is not None or type(policy).forget is not Policy.forget
        )
        self.env_steps = 0
        self.restarted_episodes = 0  # episodes that could not be continued after a resume
        if saved is None:
            self._obs = env.reset(env_seed)
        else:
            self._obs = self._resume(env_seed, saved, beat)

    def _resume(self, env_seed: int, state: Mapping[str, Any], beat: Beat) -> Array:
        """Restores the saved state and returns the next observations. [N, …]"""
        try:
            self._opt_steps = int(state["opt_steps"])
            self._policy.load_state_dict(state["policy"])
            self._step_processor.load_state_dict(state["step_processor"])
            self.proxy.load_state_dict(state["proxy"])
            env_state = state["env"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of an actor is invalid: {error!r}") from error
        obs, restarted_envs = self._env.resume(env_seed, env_state, beat)
        self._policy.forget(restarted_envs)
        self._step_processor.forget(restarted_envs)
        if self._returns is not None:
            self._returns.forget(restarted_envs)
        self.restarted_episodes = len(restarted_envs)
        return obs

    def bind_thread(self) -> None:
        """Prepares the calling thread for acting. Must not be called in the learner's thread."""
        self._policy.bind_thread()

    def step(self) -> int:
        """Steps each environment once with the newest weights and returns the sample count."""
        timer = self._timer
        timed = timer.start()
        newer = self._weights.newer_than(self._version)
        if newer is not None:
            self._version, snapshot = newer
            self._policy.load_snapshot(snapshot)
            self._opt_steps = snapshot.opt_steps

        if self._gives_extras:
            action, extras = self._policy.explore(self._obs)
        else:
            action = self._policy.act(self._obs, explore=True)  # [N] or [N, A]
        if timed:
            timer.record(ACT)
        step = self._env.step(action)
        if self._gives_extras:
            step = step._replace(extras=extras)
        if timed:
            timer.record(ENV_STEP)
        self._obs = step.act_obs
        env_steps = step.env_steps
        self.env_steps += env_steps
        if self._tracks_episodes:
            self._update_episode_state(step)
        transitions = self._step_processor.process(step)  # empty while an n-step window fills
        send_s_before = self.proxy.sent_s + self.proxy.blocked_s
        self.proxy.push(
            transitions,
            env_steps=env_steps,
            episodes=step.episodes,
            opt_steps=self._opt_steps,
        )
        if timed:
            timer.record(PROCESS, less_s=self.proxy.sent_s + self.proxy.blocked_s - send_s_before)
        return len(transitions)

    def _update_episode_state(self, step: Step) -> None:
        """Updates the running returns, and resets the state of the policy for ended episodes."""
        if step.episodes or step.moved is not None:
            self._policy.forget(step.changed_envs)
        if self._returns is not None:
            self._returns.update(step.reward, step.terminated | step.truncated, step.moved)

    @property
    def counts(self) -> ActorCounts:
        """The counters so far."""
        return ActorCounts(
            self.env_steps, self.restarted_episodes, self.proxy.rows, tuple(self.seconds)
        )

    @property
    def seconds(self) -> list[float]:
        """Seconds spent so far, in the order of `ACTOR_SECTIONS`."""
        seconds = list(self._timer.seconds)
        seconds[SEND] += self.proxy.sent_s
        seconds[BLOCKED] += self.proxy.blocked_s
        return seconds

    def state_dict(self) -> State:
        """Returns the state, which later steps do not modify. Call between two steps."""
        return {
            "env": self._env.state_dict(),
            "policy": self._policy.state_dict(),
            "step_processor": self._step_processor.state_dict(),
            "proxy": self.proxy.state_dict(),
            "opt_steps": self._opt_steps,
        }

    def flush(self) -> None:
        """Sends the buffered transitions, even if there are fewer than `n_buffer`."""
        self.proxy.flush(self._opt_steps)

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """A factory for actors, called in the thread that will own the actor.

    It contains only settings and other factories, so it can be passed to threads and processes.
    """

    seed: int
    env_factory: EnvFactory
    policy_factory: PolicyFactory
    make_step_processor: Callable[[], StepProcessor]
    imports: Sequence[str] = ()  # modules that another process must import first
    modules: Sequence[str] = ()  # all modules the settings refer to, needed on other machines
    clock: Clock = field(default_factory=MonotonicClock)
    weight_forms: ArrayForms = field(default_factory=dict)  # dtype and shape of each weight array
    extras: Sequence[Column] = ()  # columns in addition to the standard ones
    returns_gamma: float | None = None  # discount of running returns; None means no returns
    trial: Callable[[], None] | None = None  # test to run on another machine first
    run_name: str = "run"
    stall_timeout_s: float = 60.0  # `trainer.stall_timeout_s`, for managers with deadlines
    num_envs: int = 1  # environments of each actor

    def __call__(
        self,
        config: ActorManagerConfig,
        actor_id: int,
        incarnation: int,
        *,
        send: Send,
        weights: WeightSource,
        saved: State | None = None,
        beat: Beat = lambda: None,
    ) -> Actor:
        """Builds an actor. Its seeds depend only on `seed`, `actor_id` and `incarnation`.

        Given `saved`, an `Actor.state_dict` of the same incarnation, the actor continues the saved
        episodes. `beat` is called for every environment constructed and every step replayed.
        """
        path = (Branch.ACTOR, actor_id, incarnation)
        policy = self.policy_factory(
            generator(self.seed, *path, ActorStream.EXPLORATION),
            config.exploration_of(actor_id),
        )
        step_processor = self.make_step_processor()
        names = [name for name, _, _ in self.extras]
        if EPISODE in names:
            step_processor.number_episodes((actor_id << 48) + (incarnation << 32))
        env = self.env_factory.make(training=True, beat=beat)
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
                gives_extras=any(name != EPISODE for name in names),
                saved=saved,
                beat=beat,
            )
        except BaseException:
            env.close()
            raise
