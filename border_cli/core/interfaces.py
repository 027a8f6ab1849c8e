"""The interfaces between the components of a run.

An ABC rejects a missing method at construction; a Protocol describes an object that is passed in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import MonitoredPart
from border_cli.core.timing import sum_seconds
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
    """The acting half of an agent; owned by the one thread that acts with it."""

    @abstractmethod
    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        """Returns actions for N observations [N, …]: [N] or [N, A] int64, or those of a Box."""

    def explore(self, obs: Array) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
        """Returns exploring actions [N, …] and the columns that `Agent.extras` declares, [N, …]
        each. If there are such columns, actors call this method instead of `act`."""
        return self.act(obs, explore=True), {}

    @abstractmethod
    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Loads the weights and counters to act with (Border's `sync_model`)."""

    def bind_thread(self) -> None:  # noqa: B027 - most have no per-thread state
        """Called once by each thread that only acts; never by the learner's thread."""

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most have no per-episode state
        """Resets the state of environments whose episodes start over."""

    def state_dict(self) -> State:
        """Returns the state other than the weights: generators and persistent noise."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` returned."""


class PolicyFactory(Protocol):
    """A picklable factory of policies; holds no weights, usable in any thread or process."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        """Builds a policy without weights. `exploration` replaces the agent's schedule if it is a
        number; a mapping contains all `AgentConfig.exploration_settings`, validated."""


class Agent(ABC):
    """The learning half of an algorithm; only the learner's thread calls it."""

    observes: bool = True  # whether `observe` must be called

    @classmethod
    def extras(cls, config: AgentConfig, spec: EnvSpec) -> Sequence[Column]:  # noqa: ARG003
        """Returns the columns that the agent needs in addition to the common ones. Its policy
        returns their values with each action (`Policy.explore`)."""
        return ()

    @property
    @abstractmethod
    def policy_factory(self) -> PolicyFactory:
        """The factory from which actors and evaluators get their policies."""

    @abstractmethod
    def update(self, batch: Batch) -> Update | None:
        """Performs one update on a batch. An on-policy agent may return None instead, to drop the
        rest of its rollout."""

    def observe(self, transitions: Transitions) -> None:  # noqa: B027 - most have no statistics
        """Updates running statistics with transitions as they enter the replay buffer. [M]"""

    def observe_returns(self, returns: Moments) -> None:  # noqa: B027 - most have no statistics
        """Updates statistics of the running discounted returns, if the agent's settings have
        `needs_returns`. Those of a data set arrive before the first update."""

    @property
    @abstractmethod
    def opt_steps(self) -> int:
        """Number of updates so far."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """Device of the updates: cpu, cuda or cuda:1."""

    @abstractmethod
    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        """Copies the weights and counters that actors need (Border's `model_info`)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the state: numpy arrays, numbers, strings, booleans, None, lists, and
        dicts whose keys are strings."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned. An agent with the same settings then continues
        bit-identically. Raises CheckpointError if the state does not fit the agent.
        """

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Loads only the weights of another agent's state, to start training from them.

        Raises CheckpointError if they do not fit the agent.
        """
        del state
        raise CheckpointError(f"{type(self).__name__} has no weights for init_from to load")

    def first_not_finite(self) -> str | None:
        """Returns the name of the first array of the state with a NaN or infinity; None if there is
        none."""
        return None

    def learner_thread(self) -> AbstractContextManager[None]:
        """Applies the thread settings that updates need, for the duration of a `with` block."""
        return nullcontext()


class OnPolicyAgent(Agent):
    """An agent that learns from rollouts of its newest policy: each rollout is used for several
    epochs of minibatches and then dropped."""

    @abstractmethod
    def prepare(
        self, rollout: Transitions, *, env_steps: int, done: float
    ) -> Mapping[str, NDArray[np.float32]]:
        """Computes the columns of a rollout that its minibatches need, in row order. [M] each

        Schedules are evaluated at `env_steps` and at `done`, the completed fraction of the run,
        and stay fixed for all epochs.
        """

    @abstractmethod
    def finish(self, rollout: Transitions) -> None:
        """Updates running statistics with a rollout, after its last epoch. [M]"""


class Env(ABC):
    """N environments that step together; owned by one thread."""

    num_envs: int
    frames_per_s: float = 30.0  # frame rate of films; one frame per env step

    def frame(self) -> NDArray[np.uint8]:
        """Renders the first environment. Requires `render="rgb_array"` at construction.
        [H, W, 3]"""
        raise ConfigError(f"{type(self).__name__} cannot render frames for a film")

    @abstractmethod
    def reset(self, seed: int) -> Array:
        """Starts N episodes and returns their first observations. [N, …]

        Episode n of environment i, counted from this reset, depends on (seed, i, n) only, unless
        the environment has its own vector implementation (`env.vectorization`).
        """

    @abstractmethod
    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment. After the end of an episode, a training env resets; an
        evaluation env repeats the last observation with reward 0 and both flags False."""

    @abstractmethod
    def close(self) -> None:
        """Closes the environments; may be called twice."""

    def state_dict(self) -> State:
        """Returns what `resume` needs: the number and the past actions of each running episode,
        and the observations to act on next."""
        return {}

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """Continues from a saved state; called instead of `reset`, with the same seed.

        Replays the actions of each running episode and compares the outcome. Returns the
        observations to act on next [N, …], and the environments whose episode could not be
        continued. These start a new episode with a seed not used before.
        """
        del state, beat
        return self.reset(derived_seed(seed, 1)), list(range(self.num_envs))


class GoalRewards(ABC):
    """Rewards of a goal-conditioned environment, for any goal and without stepping it."""

    @abstractmethod
    def rewards(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.float32]:
        """Returns rewards for reaching `achieved` when the goal is `desired`. [M, …] each -> [M]"""

    @abstractmethod
    def terminated(self, achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Returns whether `achieved` ends the episode. [M]; None if termination ignores goals."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Releases its resources; called once."""


class EnvFactory(ABC):
    """A picklable factory of environments."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first access constructs an environment to read them."""

    @abstractmethod
    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        """Builds an `Env` with the configured number of environments, seeded by the numbers
        `first`, `first` + 1, ….

        `beat` is called after the construction of each environment.
        """

    def trials(self) -> Iterator[Env]:
        """Yields one new environment of each kind used in training, for the checks before a run.
        The caller closes them."""
        yield self.make(training=True)

    def goal_rewards(self) -> GoalRewards:
        """Returns rewards for hindsight replay; raises ConfigError if there are no goals."""
        raise ConfigError(
            f"replay_buffer=hindsight needs an environment with goals, and {self.spec.id} cannot "
            "compute rewards for other goals. Use replay_buffer=uniform"
        )


class StepProcessor(ABC):
    """Converts steps of one actor's environments to transitions; owned by that actor."""

    @abstractmethod
    def process(self, step: Step) -> Transitions:
        """Returns M transitions: 0 while an n-step window fills, several when an episode ends."""

    def number_episodes(self, first: int) -> None:  # noqa: B027 - most do not number episodes
        """Sets the number of the first episode, for the column `episode`. Called once, before the
        first step, if the replay buffer needs this column."""

    def state_dict(self) -> State:
        """Returns the steps that wait in an n-step window."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` returned."""

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most have no per-episode state
        """Discards the waiting steps of environments whose episodes start over."""


class FrozenRows(Protocol):
    """A snapshot of the stored transitions, unaffected by later pushes.

    Rows are numbered from the first one ever pushed. The learner's thread creates the snapshot and
    the writer thread reads it. If the writer cannot keep up, the remaining rows are given up.
    """

    oldest: int  # number of the oldest stored row
    first: int  # number of the first row to take
    end: int  # number of the last row, plus one

    def take(self) -> list[NDArray[Any]] | None:
        """Returns copies of the next rows, as arrays that `load_rows` accepts; the last array has
        one entry per row. Returns None once all rows are taken or given up."""

    def release(self) -> None:
        """Gives up the remaining rows; may be called twice, by any thread."""


class ReplayBuffer(ABC):
    """A store of transitions to learn from; only the learner's thread calls it."""

    @classmethod
    def row_nbytes(
        cls,
        config: ReplayBufferConfig,  # noqa: ARG003
        spec: EnvSpec,  # noqa: ARG003
        extras: Sequence[Column] = (),  # noqa: ARG003
    ) -> int:
        """Returns the bytes per transition, known before allocation; 0 if unknown.

        `extras`: columns in addition to the common ones.
        """
        return 0

    @abstractmethod
    def push(self, transitions: Transitions) -> None:
        """Copies transitions into the buffer; if it is full, overwrites the oldest."""

    @abstractmethod
    def sample(self, batch_size: int) -> Batch:
        """Returns the next batch. The next call reuses its arrays."""

    @abstractmethod
    def rows(self, index: NDArray[np.int64]) -> Transitions:
        """Returns copies of the transitions in these slots. [M]"""

    @abstractmethod
    def __len__(self) -> int:
        """Number of stored transitions."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Maximum number of stored transitions."""

    @abstractmethod
    def freeze(self, first: int) -> FrozenRows:
        """Returns a snapshot of the transitions from number `first` on, or from the oldest stored
        one, for a checkpoint that is written while learning continues. Transitions of a data set
        have no number and are not saved.

        Ends the snapshot of an earlier call.
        """

    @abstractmethod
    def state_dict(self) -> State:
        """Returns the state without the transitions: row numbers, priorities, generators."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; `load_rows` follows."""

    @abstractmethod
    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        """Restores a chunk of transitions, numbered from `first` on, to their slots. Skips those
        that had been overwritten when the state was saved. Raises CheckpointError if they do not
        fit this buffer."""

    @property
    def uses_priorities(self) -> bool:
        """True if `update_priorities` should be called after each update."""
        return False

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:  # noqa: B027
        """Sets priorities from the TD errors of the sampled transitions. [B], [B]"""

    def update_schedules(self, done: float) -> None:  # noqa: B027
        """Updates schedules that span the run; `done` is its completed fraction, 0 to 1."""


class RolloutStore(ReplayBuffer):
    """A replay buffer for on-policy agents: a rollout is collected, used for several epochs of
    minibatches, and dropped."""

    size: int  # env steps of a complete rollout

    @abstractmethod
    def rollout(self) -> Transitions:
        """Returns copies of all rows, in order of arrival. [M]"""

    @abstractmethod
    def prepare(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Starts the epochs, whose minibatches also contain these columns. [M, …] each"""

    @property
    @abstractmethod
    def prepared(self) -> bool:
        """True once the epochs have started: no rows may arrive until `drop`."""

    @property
    @abstractmethod
    def used_up(self) -> bool:
        """True once all epochs are over."""

    @abstractmethod
    def drop(self) -> None:
        """Discards the rollout to make room for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """Counters of one actor, over all its incarnations."""

    actor_id: int
    env_steps: int = 0
    samples: int = 0  # transitions received by the learner
    duration_s: float = 0.0
    restarts: int = 0
    # Lost in a crash, or in flight when an actor was killed or a resumed checkpoint was saved.
    lost_samples: int = 0
    restarted_episodes: int = 0  # episodes that a resumed run could not continue
    # Time per section: act, env_step, process, send, blocked. The first three are estimated from
    # occasionally timed steps. May be empty before the first step.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.duration_s if self.duration_s > 0 else 0.0

    def plus(self, later: ActorStats) -> ActorStats:
        """Returns the sums of these counters and those of a later period."""
        return ActorStats(
            actor_id=self.actor_id,
            env_steps=self.env_steps + later.env_steps,
            samples=self.samples + later.samples,
            duration_s=self.duration_s + later.duration_s,
            restarts=self.restarts + later.restarts,
            lost_samples=self.lost_samples + later.lost_samples,
            restarted_episodes=self.restarted_episodes + later.restarted_episodes,
            seconds=sum_seconds([self.seconds, later.seconds]),
        )


class ActorManager(ABC):
    """Runs actors between `__enter__` and `__exit__`; only a hung thread outlives the block."""

    # Whether actors step only within `receive`, so that two runs with one seed are bit-identical
    # and a resumed run continues every episode. After `stop`, `state_dict` then still returns the
    # state before it, including the samples that the actors had not sent.
    reproducible: ClassVar[bool] = False

    @property
    def cluster(self) -> object | None:
        """The `ClusterSettings` with which another process joins the Ray cluster of the actors;
        None if there is no cluster or it has not started."""
        return None

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, exc_type: object, *rest: object) -> None: ...

    @abstractmethod
    def publish(self, snapshot: Snapshot) -> None:
        """Makes these weights the newest; the first call must precede the first `permit`."""

    @abstractmethod
    def permit(self, samples_total: float) -> None:
        """Allows the actors to collect up to `samples_total` samples overall. Never decreases.
        Before the first call, actors take no step."""

    @abstractmethod
    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        """Returns the messages that have arrived; waits up to `timeout_s` if there are none.

        Their arrays are valid until the next call, after which actors may overwrite them.
        Raises `ActorCrashed` if an actor fails for good; with Ray, only if no actor is left.
        """

    def receive_all(self, timeout_s: float) -> list[Experience]:
        """Like `receive`, but a reproducible manager tries to collect all permitted samples within
        `timeout_s`, instead of one step of each actor. The samples are the same."""
        return self.receive(timeout_s)

    @abstractmethod
    def stop(self) -> list[Experience]:
        """Stops the actors and returns all messages in flight; idempotent."""

    def undelivered(self) -> list[Experience]:
        """Returns messages that `state_dict` counts as received but `receive` has not returned.

        Only a reproducible manager has any, after an error has interrupted a round.
        """
        return []

    @abstractmethod
    def state_dict(self) -> State:
        """Returns the counters of all actors, and the complete state of reproducible ones. May be
        called between two calls of `receive` and after `stop`. The result is never modified."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state of this or any other manager; called before the `with` block."""

    @abstractmethod
    def stats(self) -> list[ActorStats]:
        """Returns one entry per actor id; may be called at any time."""

    @abstractmethod
    def heartbeats(self) -> Sequence[MonitoredPart]:
        """Returns one heartbeat per actor (with Ray, only the broker's), for the watchdog."""

    @abstractmethod
    def gauges(self) -> Metrics:
        """Returns queue fill and similar values, for recorders and the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """A short film of an evaluated episode."""

    gif: bytes = b""
    problem: str | None = None  # reason why there is no film


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation."""

    score: float  # mean undiscounted return; determines the best model
    returns: tuple[float, ...]  # one per episode
    lengths: tuple[int, ...]
    metrics: Metrics  # names include the `eval/` prefix
    # Values of `EnvSpec.info_metrics`, one per episode; only names that all episodes have.
    info: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    film: Film | None = None  # None if no film was due

    @property
    def not_finite(self) -> str | None:
        """Describes the first episode whose return is NaN or infinite; None if all are finite."""
        for number, value in enumerate(self.returns):
            if not math.isfinite(value):
                return f"episode {number} ended after {self.lengths[number]} steps with {value}"
        return None


class Evaluator(ABC):
    """Base class of evaluators of policies; owned by the one thread that calls it."""

    def describe(self) -> str:
        """Returns one line for the header of a run."""
        return type(self).__name__

    @property
    def needs_episode_limit(self) -> bool:
        """True if neither the environment nor the settings limit the length of an episode. The
        trainer then decides a limit before the first evaluation."""
        return False

    def limit_episodes(self, steps: int) -> None:
        """Ends all later episodes after this many env steps."""
        del steps

    @abstractmethod
    def evaluate(self, policy: Policy) -> Evaluation:
        """Runs greedy episodes, with the same seeds every time. Raises if a stop is requested."""

    def extend(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """Returns `evaluation` extended by as many new episodes as `evaluate` runs, or unchanged
        if the evaluator has no others."""
        del policy
        return evaluation

    def film(self, policy: Policy, opt_steps: int) -> Film | None:
        """Returns a film of an episode if one is due after `opt_steps` updates. Reports a failure
        in `Film.problem`; raises only if a stop is requested."""
        del policy, opt_steps
        return None

    @abstractmethod
    def close(self) -> None:
        """Closes its environments; may be called twice."""


class EvaluationRunner(ABC):
    """Base class of runners, which evaluate one snapshot at a time, inline or in the background;
    called by the learner's thread."""

    in_background: bool  # whether training continues between `submit` and `collect`

    @property
    @abstractmethod
    def pulse(self) -> MonitoredPart:
        """The heartbeat for the watchdog."""

    def open(  # noqa: B027 - nothing to start inline
        self, actors: ActorManager | None = None
    ) -> None:
        """Starts the evaluation processes, possibly on the Ray cluster of the actors. Called before
        training starts."""

    def close(self) -> None:  # noqa: B027 - the caller closes an inline evaluator
        """Ends the evaluation processes, even during an evaluation; may be called twice."""

    @abstractmethod
    def submit(self, snapshot: Snapshot) -> None:
        """Starts an evaluation. Must not be called while one is running."""

    def on_step(self, call: Callable[[], None]) -> None:
        """Registers a function to call repeatedly while the learner waits for an evaluation."""
        del call

    @abstractmethod
    def collect(self) -> Evaluation | None:
        """Returns the result of the running evaluation, once, or None if it is not available."""

    @abstractmethod
    def wait(self) -> Evaluation:
        """Waits for the result of the running evaluation. Raises if a stop is requested."""
