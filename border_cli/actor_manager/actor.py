"""An actor: a policy in its environments, and the messages in which it sends its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from border_cli.actor_manager.weights import ArrayForms, WeightSource
from border_cli.core.interfaces import Env, EnvFactory, Policy, PolicyFactory, StepProcessor
from border_cli.core.returns import DiscountedReturns, Moments
from border_cli.core.rows import columns_of, concatenate, copied_rows, transitions_of
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

# One step in so many is timed and represents all: the clock would cost some per cent of a short
# step. A prime, so that it falls in with no other rhythm of the actor.
TIMED_EVERY: Final = 17

_NO_ROWS = Transitions(
    obs=np.empty(0, np.float32),
    action=np.empty(0, np.int64),
    reward=np.empty(0, np.float32),
    discount=np.empty(0, np.float32),
    next_obs=np.empty(0, np.float32),
)


class StepTimer:
    """Seconds per section of one actor; owned by the thread that steps it."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = [0.0] * len(ACTOR_SECTIONS)
        self._clock = clock
        self._countdown = 1  # the first step is timed
        self._since_s = 0.0

    def start(self) -> bool:
        """Starts a step; returns whether it is one of those that are timed."""
        self._countdown -= 1
        if self._countdown:
            return False
        self._countdown = TIMED_EVERY
        self._since_s = self._clock.now_s()
        return True

    def record(self, section: int, *, less_s: float = 0.0) -> None:
        """Adds the time since the last call, without `less_s`, to this section."""
        now_s = self._clock.now_s()
        self.seconds[section] += TIMED_EVERY * max(0.0, now_s - self._since_s - less_s)
        self._since_s = now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of an actor, its transitions still in the parts in which they came.

    They are joined where the learner will read them, so that each is written once.
    """

    actor_id: int
    opt_steps: int  # of the weights that acted last
    env_steps: int
    parts: list[Transitions]
    rows: int  # in all parts
    episodes: tuple[Episode, ...]
    returns: tuple[Moments, ...] = ()

    def experience(self) -> Experience:
        """The message with all transitions in one block."""
        return Experience(
            actor_id=self.actor_id,
            opt_steps=self.opt_steps,
            env_steps=self.env_steps,
            transitions=concatenate(self.parts) if self.parts else _NO_ROWS,
            episodes=self.episodes,
            returns=self.returns,
        )


def copied(message: Experience) -> Experience:
    """The message with its transitions in memory of their own."""
    return replace(message, transitions=copied_rows(message.transitions))


Send: TypeAlias = Callable[[Message], float]  # returns the seconds that it waited for space


class ReplayBufferProxy:
    """Gathers at least `n_buffer` transitions, then sends them; owned by one actor.

    Where the agent needs them, the running `returns` of the same env steps go with each message.
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
        self.rows = 0  # gathered and not sent
        self.sent_s = 0.0  # seconds it took to send
        self.blocked_s = 0.0  # seconds that it waited for space

    def push(
        self,
        transitions: Transitions,
        *,
        env_steps: int,
        episodes: tuple[Episode, ...],
        opt_steps: int,
    ) -> None:
        """Adds the result of one step; `opt_steps` are those of the weights that acted."""
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
        """Sends what was gathered, if anything; may wait for space."""
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
        blocked_s = self._send(message)  # if it raises, the rows count as lost
        self.blocked_s += blocked_s
        self.sent_s += max(0.0, self._clock.now_s() - began_s - blocked_s)
        self._parts, self._episodes = [], []
        self._env_steps = self.rows = 0

    def state_dict(self) -> State:
        """Transitions, steps and episodes that were gathered and not sent."""
        state = {
            "columns": columns_of(concatenate(self._parts)) if self._parts else None,
            "env_steps": self._env_steps,
            "episodes": [each.numbers() for each in self._episodes],
        }
        if self.returns is not None:
            state["returns"] = self.returns.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned, in place of what was gathered."""
        columns = state["columns"]
        self._parts = [] if columns is None else [Transitions(**transitions_of(columns))]
        self.rows = sum(map(len, self._parts))
        self._env_steps = state["env_steps"]
        self._episodes = [Episode.of(each) for each in state["episodes"]]
        if self.returns is not None:
            self.returns.load_state_dict(state["returns"])


class Actor:
    """Acts one step at a time.

    Threads and processes put `step` in a loop; the serial manager and the tests call it directly.
    Two actors share no state. Owned by the thread that made it.

    With `saved`, the `state_dict` of an actor that had the same seeds, it continues that one's
    episodes; its counters of steps and seconds begin at 0.
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
        """`gives_extras`: the agent asks for columns that the policy gives with its actions."""
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
        # Looked up once: most policies keep no state, and every step would pay for the look-up.
        self._tracks_episodes = (
            self._returns is not None or type(policy).forget is not Policy.forget
        )
        self.env_steps = 0
        self.restarted_episodes = 0  # that could not be continued and began anew
        if saved is None:
            self._obs = env.reset(env_seed)
        else:
            self._obs = self._resume(env_seed, saved, beat)

    def _resume(self, env_seed: int, state: Mapping[str, Any], beat: Beat) -> Array:
        """Restores all that it owns; returns the observations to act on next. [N, …]"""
        try:
            self._opt_steps = int(state["opt_steps"])
            self._policy.load_state_dict(state["policy"])
            self._step_processor.load_state_dict(state["step_processor"])
            self.proxy.load_state_dict(state["proxy"])
            env_state = state["env"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved state of an actor is invalid: {error!r}") from error
        obs, anew = self._env.resume(env_seed, env_state, beat)
        self._policy.forget(anew)
        self._step_processor.forget(anew)
        if self._returns is not None:
            self._returns.forget(anew)
        self.restarted_episodes = len(anew)
        return obs

    def bind_thread(self) -> None:
        """Called once by a thread that does nothing but act, and so not by the learner's."""
        self._policy.bind_thread()

    def step(self) -> int:
        """Acts once in each environment with the newest weights; returns the number of samples."""
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
            self._report_episode_ends(step)
        transitions = self._step_processor.process(step)  # M rows; 0 while a window fills
        elsewhere_s = self.proxy.sent_s + self.proxy.blocked_s
        self.proxy.push(
            transitions,
            env_steps=env_steps,
            episodes=step.episodes,
            opt_steps=self._opt_steps,
        )
        if timed:
            timer.record(PROCESS, less_s=self.proxy.sent_s + self.proxy.blocked_s - elsewhere_s)
        return len(transitions)

    def _report_episode_ends(self, step: Step) -> None:
        """Resets the state that policy and returns keep of episodes that ended."""
        if step.episodes or step.moved is not None:
            self._policy.forget(step.begun)
        if self._returns is not None:
            self._returns.see(step.reward, step.terminated | step.truncated, step.moved)

    @property
    def seconds(self) -> list[float]:
        """Time spent so far, by section of `ACTOR_SECTIONS`."""
        seconds = list(self._timer.seconds)
        seconds[SEND] += self.proxy.sent_s
        seconds[BLOCKED] += self.proxy.blocked_s
        return seconds

    def state_dict(self) -> State:
        """Its state between two steps; nothing in it is written again."""
        return {
            "env": self._env.state_dict(),
            "policy": self._policy.state_dict(),
            "step_processor": self._step_processor.state_dict(),
            "proxy": self.proxy.state_dict(),
            "opt_steps": self._opt_steps,
        }

    def flush(self) -> None:
        """Sends the partly filled proxy."""
        self.proxy.flush(self._opt_steps)

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorFactory:
    """Makes each incarnation of an actor, in the thread that calls it.

    Holds recipes only, so it may cross to other threads and processes.
    """

    seed: int
    env_factory: EnvFactory
    policy_factory: PolicyFactory
    make_step_processor: Callable[[], StepProcessor]
    imports: Sequence[str] = ()  # modules that another process must import first
    modules: Sequence[str] = ()  # all that the settings lead to, which another machine needs
    clock: Clock = field(default_factory=MonotonicClock)
    weight_forms: ArrayForms = field(default_factory=dict)  # of every snapshot's arrays
    extras: Sequence[Column] = ()  # columns of rows beside those of all runs
    returns_gamma: float | None = None  # of running returns; None: the agent needs none
    trial: Callable[[], None] | None = None  # of its environments, before another machine acts
    run_name: str = "run"
    stall_timeout_s: float = 60.0  # of the run's trainer, for managers that set deadlines

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
        """A new actor. Its seeds depend on (seed, actor_id, incarnation) only.

        With `saved`, the `Actor.state_dict` of this very incarnation, it continues that one's
        episodes; `beat` is called at every step that is replayed for it, and for every
        environment that is constructed.
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
