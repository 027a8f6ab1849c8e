"""The interfaces between the parts.

An ABC refuses a missing method at construction; a Protocol describes what is merely passed in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Pulse
from border_cli.core.timing import summed
from border_cli.core.types import (
    Array,
    Batch,
    Beat,
    Column,
    Experience,
    Metrics,
    Snapshot,
    State,
    Step,
    Transitions,
    Update,
)
from border_cli.errors import CheckpointError, ConfigError
from border_cli.settings.run import ActorExploration, AgentConfig, ReplayBufferConfig


class Policy(ABC):
    """The part of an agent that acts; owned by the one thread that acts with it."""

    @abstractmethod
    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        """Actions for N observations [N, …]: [N] int64, or [N, A] float32."""

    def explore(self, obs: Array) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
        """Exploring actions [N, …] and the columns that the agent asks for (`Agent.extras`),
        [N, …] each. Actors call it in place of `act` where there are any."""
        return self.act(obs, explore=True), {}

    @abstractmethod
    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Acts with these weights and schedules from now on (Border's `sync_model`)."""

    def bind_thread(self) -> None:  # noqa: B027 - most policies keep nothing per thread
        """Called once by a thread that does nothing but act; not by the learner's."""

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most keep nothing per episode
        """Drops what it keeps of these of the N environments: their episodes start again."""

    def state_dict(self) -> State:
        """The state of acting besides the weights: generators, noise that lasts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` gave."""


class PolicyFactory(Protocol):
    """A picklable recipe for policies that any thread or process may use; holds no weights."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        """A policy without weights. A number for `exploration` replaces the agent's schedule, a
        mapping has checked values of all `AgentConfig.exploration_settings`."""


class Agent(ABC):
    """A learner's half of an algorithm; only the learner's thread calls it."""

    observes: bool = True  # whether `observe` must be called

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:  # noqa: ARG003
        """The columns that it learns from beside those of all runs, and that its policy gives with
        each action (`Policy.explore`)."""
        return ()

    @property
    @abstractmethod
    def policy_factory(self) -> PolicyFactory:
        """How actors and evaluators make their policies."""

    @abstractmethod
    def update(self, batch: Batch) -> Update | None:
        """One update on one batch; None where an on-policy agent has made none, because its
        rollout is to be dropped."""

    def observe(self, transitions: Transitions) -> None:  # noqa: B027 - most keep no statistics
        """Sees each transition once, as it enters the replay buffer: for running statistics. [M]"""

    def observe_returns(self, returns: Moments) -> None:  # noqa: B027 - most keep no statistics
        """Sees the running discounted returns of each message once, where its settings have
        `needs_returns`; those of a data set before the first update."""

    @property
    @abstractmethod
    def opt_steps(self) -> int:
        """Updates made so far."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """Where the updates run: cpu, cuda or cuda:1."""

    @abstractmethod
    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        """Copies of what acting needs (Border's `model_info`)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, strings, and dicts and lists of these: readable with weights_only."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave: an agent of the same settings continues bit-identically.

        Raises CheckpointError where it does not fit.
        """

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes only the weights from another agent's state: training starts from them.

        Raises CheckpointError where they do not fit.
        """
        del state
        raise CheckpointError(f"{type(self).__name__} has no weights for init_from to load")

    def first_not_finite(self) -> str | None:
        """The name of the first weight that is a NaN or an infinity; None where all are fine."""
        return None

    def learner_thread(self) -> AbstractContextManager[None]:
        """Within the block the calling thread has the settings that updates need."""
        return nullcontext()


class OnPolicyAgent(Agent):
    """An agent that learns from rollouts: rows of its newest policy, which are used for some epochs
    of minibatches and then dropped."""

    @abstractmethod
    def prepare(
        self, rollout: Transitions, *, env_steps: int, done: float
    ) -> Mapping[str, NDArray[np.float32]]:
        """Columns that its minibatches need of a whole rollout, in the order of its rows. [M] each

        Schedules stay as they are at this moment for all of its epochs: `env_steps` of the run, a
        share `done` of it, 0 to 1.
        """

    @abstractmethod
    def finish(self, rollout: Transitions) -> None:
        """The epochs of the rollout are over: running statistics take it in. [M]"""


class Env(ABC):
    """N environments that step together; owned by one thread."""

    num_envs: int
    frames_per_s: float = 30.0  # at which films of it show its steps

    def frame(self) -> NDArray[np.uint8]:
        """A picture of the first environment as it is, where it was made with
        `render="rgb_array"`. [H, W, 3]"""
        raise ConfigError(f"{type(self).__name__} has no pictures to film")

    @abstractmethod
    def reset(self, seed: int) -> Array:
        """Starts N episodes and returns what to act on first. [N, …]

        Episode n of environment i, counted from this reset, depends on (seed, i, n) only, unless
        the environment has an implementation of its own for many (`env.vectorization`).
        """

    @abstractmethod
    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment. A training env resets what ended; an evaluation env
        leaves it still: it repeats its last observation with reward 0 and neither flag."""

    @abstractmethod
    def close(self) -> None:
        """Frees the environments; may be called twice."""

    def state_dict(self) -> State:
        """A way back to this moment: the seed and the actions so far of each running
        episode, and what is acted on next."""
        return {}

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """In place of `reset`, which had this seed: continues where `state_dict` was taken.

        Replays the actions of each running episode and compares the outcome. Returns what to act
        on next [N, …], and the environments whose episode could not be continued and was started
        again, with a seed that no episode had before.
        """
        del state, beat
        return self.reset(derived_seed(seed, 1)), list(range(self.num_envs))


class GoalRewards(ABC):
    """Rewards of an environment with goals, for any goal and without a step of it."""

    @abstractmethod
    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Rewards for reaching `achieved` where `desired` was the goal. [M, …], [M, …] -> [M]"""

    @abstractmethod
    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Whether that ends the episode. [M]; None where goals have no influence on that."""

    def close(self) -> None:  # noqa: B027 - most keep nothing open
        """Frees what computing them takes; called once."""


class EnvFactory(ABC):
    """A picklable recipe for environments."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment to read them."""

    @abstractmethod
    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        """A fresh environment of `num_envs`; its seeds are those of environments `first`, ….

        `beat` is called after each one that was constructed.
        """

    def trials(self) -> Iterator[Env]:
        """Fresh environments for the checks before a run, one of each kind that training makes;
        the caller closes each."""
        yield self.make(training=True)

    def goal_rewards(self) -> GoalRewards:
        """For hindsight; raises ConfigError where the environment has no goals."""
        raise ConfigError(
            f"replay_buffer=hindsight needs an environment with goals, and {self.spec.id} computes "
            "no rewards for others than its own. Use replay_buffer=uniform"
        )


class StepProcessor(ABC):
    """Turns the steps of one actor's environments into transitions; owned by that actor."""

    @abstractmethod
    def process(self, step: Step) -> Transitions:
        """M transitions; 0 while an n-step window fills, several when an episode ends."""

    def number_episodes(self, first: int) -> None:  # noqa: B027 - who tells no episodes needs none
        """Called once, before the first step, where a replay buffer asks for the column `episode`:
        the episodes of its rows have numbers from here on."""

    def state_dict(self) -> State:
        """The steps that wait in an n-step window."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` gave."""

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most keep nothing per episode
        """Drops what waits of these environments: their episodes start again."""


class FrozenRows(Protocol):
    """The stored transitions of one moment, however many are pushed afterwards.

    Rows are numbered from the first one ever pushed. Made by the learner's thread, read by the one
    that writes; where that does not keep up, all that was not taken is given up.
    """

    oldest: int  # number of the oldest row that was stored
    first: int  # of the first row that is taken
    end: int  # behind the last row

    def take(self) -> list[NDArray[Any]] | None:
        """A chunk: copies of the next rows, in arrays that `load_rows` understands; the last array
        has an entry for each. None once all are taken, or given up."""

    def release(self) -> None:
        """Drops what was not taken; may be called twice, by any thread."""


class ReplayBuffer(ABC):
    """Transitions to learn from; only the learner's thread calls it."""

    @classmethod
    def row_nbytes(
        cls,
        config: ReplayBufferConfig,  # noqa: ARG003
        spec: EnvSpec,  # noqa: ARG003
        extras: Sequence[Column] = (),  # noqa: ARG003
    ) -> int:
        """Bytes of one transition, told before anything is allocated; 0: nobody knows.

        `extras`: columns beside those of all runs.
        """
        return 0

    @abstractmethod
    def push(self, transitions: Transitions) -> None:
        """Copies transitions in, over the oldest where it is full."""

    @abstractmethod
    def sample(self, batch_size: int) -> Batch:
        """Draws transitions with replacement. The next call reuses the batch's arrays."""

    @abstractmethod
    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Copies of the transitions in these slots. [M]"""

    @abstractmethod
    def __len__(self) -> int:
        """Transitions stored now."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Transitions it can hold."""

    @abstractmethod
    def freeze(self, first: int) -> FrozenRows:
        """The stored transitions from number `first` on, or from the oldest stored one, for a
        checkpoint that is written while learning goes on. Those of a data set have no number, and
        no checkpoint holds them.

        Ends what an earlier call froze.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Everything except the transitions: their numbers, priorities, generators."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave; `load_rows` follows."""

    @abstractmethod
    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        """Puts a chunk of transitions numbered from `first` on back in their slots, but those that
        were overwritten before the state was taken; raises CheckpointError where they do not fit
        this buffer."""

    @property
    def uses_priorities(self) -> bool:
        """Whether `update_priorities` should be called after each update."""
        return False

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:  # noqa: B027
        """Takes the TD errors of the sampled transitions. [B], [B]"""

    def follow(self, done: float) -> None:  # noqa: B027
        """Takes the share of the run that is done, 0 to 1, for schedules that end with it."""


class RolloutStore(ReplayBuffer):
    """A replay buffer for on-policy agents: a rollout is collected, used for some epochs of
    minibatches, and dropped."""

    size: int  # env steps that complete a rollout

    @abstractmethod
    def rollout(self) -> Transitions:
        """Copies of all rows, in the order of their arrival. [M]"""

    @abstractmethod
    def prepare(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Begins the epochs; each minibatch has its rows of these columns. [M, …] each"""

    @property
    @abstractmethod
    def prepared(self) -> bool:
        """Whether the epochs have begun: no rows may arrive until `drop`."""

    @property
    @abstractmethod
    def used_up(self) -> bool:
        """Whether all epochs are over."""

    @abstractmethod
    def drop(self) -> None:
        """Empties it for the next rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """Counters of one actor, over all its incarnations."""

    actor_id: int
    env_steps: int = 0
    samples: int = 0  # transitions that the learner received
    duration_s: float = 0.0
    restarts: int = 0
    lost_samples: int = 0  # that it never will: of crashed actors, or in flight at a kill
    restarted_episodes: int = 0  # that a resumed run could not continue
    # Where its time went: act, env_step, process, send, blocked. Estimated from steps that were
    # timed now and then; empty where none was.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.duration_s if self.duration_s > 0 else 0.0

    def plus(self, later: ActorStats) -> ActorStats:
        """All counters added to those of a later time."""
        return ActorStats(
            actor_id=self.actor_id,
            env_steps=self.env_steps + later.env_steps,
            samples=self.samples + later.samples,
            duration_s=self.duration_s + later.duration_s,
            restarts=self.restarts + later.restarts,
            lost_samples=self.lost_samples + later.lost_samples,
            restarted_episodes=self.restarted_episodes + later.restarted_episodes,
            seconds=summed([self.seconds, later.seconds]),
        )


class ActorManager(ABC):
    """Runs actors between `__enter__` and `__exit__`; none outlives the `with` block."""

    # Actors step only within `receive`, so that two runs with one seed are bit-identical,
    # and a resumed one continues every episode. `state_dict` is then as of the moment before a
    # `stop`, with what the actors had gathered.
    reproducible: ClassVar[bool] = False

    @property
    def cluster(self) -> object | None:
        """The `ClusterSettings` with which another process joins the Ray cluster of the actors;
        None where there is none, or none yet."""
        return None

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def publish(self, snapshot: Snapshot) -> None:
        """Makes these the newest weights; called once before the first `permit`."""

    @abstractmethod
    def permit(self, samples_total: float) -> None:
        """Lets the actors make samples until there are so many in all; never takes back. They begin
        with the first call."""

    @abstractmethod
    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        """The messages that arrived, immediately where some did, else within `timeout_s`.

        Its arrays are valid until the next call, after which actors may overwrite them.
        Raises `ActorCrashed` once an actor has used up its restarts.
        """

    @abstractmethod
    def stop(self) -> list[Experience]:
        """Ends acting and returns everything in flight; idempotent."""

    def undelivered(self) -> list[Experience]:
        """Messages that `receive` has not returned though `state_dict` counts them as received.

        Only a reproducible manager has any: of a round that an error cut short.
        """
        return []

    @abstractmethod
    def state_dict(self) -> State:
        """The counters of all actors, and everything else of reproducible ones; at any time
        between two `receive`, and after `stop`. Nothing in it is written again."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from there; called before the `with` block. Any manager takes any other's."""

    @abstractmethod
    def stats(self) -> list[ActorStats]:
        """One entry per actor id; may be called at any time."""

    @abstractmethod
    def heartbeats(self) -> Sequence[Pulse]:
        """One per actor, for the watchdog."""

    @abstractmethod
    def gauges(self) -> Metrics:
        """Queue fill and similar, for records and the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """A short film of an evaluated episode."""

    gif: bytes = b""
    problem: str | None = None  # why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation."""

    score: float  # mean undiscounted return; picks the best model
    returns: tuple[float, ...]  # one per episode
    lengths: tuple[int, ...]
    metrics: Metrics  # with their `eval/` in front
    # What `EnvSpec.info_metrics` names, one value per episode; only names that all episodes have.
    info: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    film: Film | None = None  # where one was due

    @property
    def not_finite(self) -> str | None:
        """The first episode whose return is NaN or infinite, in words; None if all are finite."""
        for number, value in enumerate(self.returns):
            if not math.isfinite(value):
                return f"episode {number} ended after {self.lengths[number]} steps with {value}"
        return None


class Evaluator(ABC):
    """Evaluates a policy; called by the learner's thread."""

    def describe(self) -> str:
        """One line for the header of a run."""
        return type(self).__name__

    @property
    def needs_episode_limit(self) -> bool:
        """Whether neither the environment nor the settings end an episode for certain. Then the
        trainer decides a limit before the first evaluation."""
        return False

    def limit_episodes(self, steps: int) -> None:
        """Ends episodes after so many env steps from now on."""
        del steps

    @abstractmethod
    def evaluate(self, policy: Policy) -> Evaluation:
        """Runs greedy episodes; the same seeds every time. Raises what its `StopFlag` holds."""

    def extended(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """An evaluation of this policy with as many episodes more as `evaluate` runs, none of them
        twice; the same one where an evaluator has no others."""
        del policy
        return evaluation

    def film(self, policy: Policy, opt_steps: int) -> Film | None:
        """A film of an episode after so many updates, where one is due. Never raises but what its
        `StopFlag` holds: a film that fails says why."""
        del policy, opt_steps
        return None

    @abstractmethod
    def close(self) -> None:
        """Frees its environments; may be called twice."""


class EvaluationRunner(ABC):
    """Evaluates one snapshot at a time, inline or in the background; called by the learner's
    thread."""

    in_background: bool  # whether training continues between `submit` and `collect`

    @property
    @abstractmethod
    def pulse(self) -> Pulse:
        """For the watchdog."""

    def open(  # noqa: B027 - nothing to start inline
        self, actors: ActorManager | None = None
    ) -> None:
        """Starts what will evaluate, perhaps on the cluster of the actors; called before training
        begins."""

    def close(self) -> None:  # noqa: B027 - the caller closes its evaluator
        """Ends what was opened, also in the middle of an evaluation; may be called twice."""

    @abstractmethod
    def submit(self, snapshot: Snapshot) -> None:
        """Begins an evaluation; not while one is under way."""

    def on_step(self, call: Callable[[], None]) -> None:
        """Has `call` called again and again while the learner's thread waits for an evaluation."""
        del call

    @abstractmethod
    def collect(self) -> Evaluation | None:
        """The outcome of the evaluation under way, once, as soon as it is there."""

    @abstractmethod
    def wait(self) -> Evaluation:
        """The outcome of the evaluation under way. Raises what the `StopFlag` holds."""
