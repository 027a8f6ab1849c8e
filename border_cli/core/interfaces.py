"""What the parts promise each other. A missing method is refused at construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import EnvSpec
from border_cli.core.stop import Pulse
from border_cli.core.types import (
    Array,
    Batch,
    Experience,
    Metrics,
    Snapshot,
    Step,
    Transitions,
    Update,
)


class Policy(ABC):
    """All of an agent that an actor may touch; owned by the one thread that acts with it."""

    @abstractmethod
    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        """Actions for N observations [N, …]: [N] int64, or [N, A] float32."""

    @abstractmethod
    def load_snapshot(self, snapshot: Snapshot) -> None:
        """Acts with these weights and schedules from now on (Border's `sync_model`)."""

    def bind_thread(self) -> None:  # noqa: B027 - most policies keep nothing per thread
        """Sets what the calling thread must have before it acts."""


class PolicyFactory(Protocol):
    """A picklable recipe for policies that any thread or process may use; holds no weights."""

    def __call__(self, rng: np.random.Generator, exploration: float | None = None) -> Policy:
        """A policy without weights. A number for `exploration` replaces the agent's schedule."""


class Agent(ABC):
    """A learner's half of an algorithm; only the learner's thread calls it."""

    @property
    @abstractmethod
    def policy_factory(self) -> PolicyFactory:
        """How actors and evaluators make their policies."""

    @abstractmethod
    def update(self, batch: Batch) -> Update:
        """One optimisation step on one batch."""

    @property
    @abstractmethod
    def opt_steps(self) -> int:
        """Optimisation steps made so far."""

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
        """Restores what `state_dict` gave."""

    def learner_thread(self) -> AbstractContextManager[None]:
        """Within the block the calling thread has the settings that updates need."""
        return nullcontext()


class Env(ABC):
    """N environments that step together; owned by one thread."""

    num_envs: int

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


class Translator(Protocol):
    """Between one raw observation or action of an environment and the rows of a policy."""

    def observation(self, observation: Any) -> Array:
        """One raw observation as one row.  [1, …]"""

    def action(self, action: NDArray[Any]) -> Any:
        """One row of actions as the environment's `step` wants it."""


class EnvFactory(ABC):
    """A picklable recipe for environments."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment to read them."""

    @abstractmethod
    def make(self, *, training: bool, render: str | None = None, first: int = 0) -> Env:
        """A fresh environment of `num_envs`; its seeds are those of environments `first`, …"""

    @abstractmethod
    def translator(self) -> Translator:
        """For callers that step an environment of their own."""


class StepProcessor(ABC):
    """Turns the steps of one actor's environments into rows; owned by that actor."""

    @abstractmethod
    def process(self, step: Step) -> Transitions:
        """M rows; 0 while an n-step window fills, several when an episode ends."""


class ReplayBuffer(ABC):
    """Rows to learn from; only the learner's thread calls it."""

    @abstractmethod
    def push(self, transitions: Transitions) -> None:
        """Copies the rows in, over the oldest where it is full."""

    @abstractmethod
    def sample(self, batch_size: int) -> Batch:
        """Draws rows with replacement. The batch's arrays are reused by the next call."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows stored now."""

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Rows it can hold."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes allocated."""

    @property
    def uses_priorities(self) -> bool:
        """Whether `update_priorities` should be called after each update."""
        return False

    def update_priorities(self, index: NDArray[np.int64], td_error: NDArray[Any]) -> None:  # noqa: B027
        """Tells how wrong the sampled rows were. [B], [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStats:
    """What one actor did, over all its lives."""

    actor_id: int
    env_steps: int
    samples: int  # rows that the learner received
    duration_s: float
    restarts: int
    lost_samples: int  # rows that died with a crashed actor
    # Where its time went, of all lives: act, env_step, process, send, blocked. Estimated from
    # steps that were timed now and then; empty where nobody measured.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.duration_s if self.duration_s > 0 else 0.0


class ActorManager(ABC):
    """Runs actors between `__enter__` and `__exit__`; none outlives the `with` block."""

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
        """Makes these the newest weights; the first call lets the actors begin."""

    @abstractmethod
    def permit(self, samples_total: float) -> None:
        """Lets the actors make rows until they have made so many in all; never takes back."""

    @abstractmethod
    def receive(self, timeout_s: float = 0.0) -> list[Experience]:
        """What arrived, at once where something did, else within `timeout_s`.

        Its arrays are valid until the next call, which may let actors write over them.
        Raises `ActorCrashed` once an actor is past its restarts.
        """

    @abstractmethod
    def stop(self) -> list[Experience]:
        """Ends acting and returns all that is under way; idempotent."""

    @abstractmethod
    def stats(self) -> list[ActorStats]:
        """One entry per actor id; may be called at any time."""

    @abstractmethod
    def heartbeats(self) -> Sequence[Pulse]:
        """One per actor, for the watchdog."""

    @abstractmethod
    def gauges(self) -> Metrics:
        """Queue fill and the like, for records and the panel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation."""

    score: float  # mean undiscounted return; picks the best model
    returns: tuple[float, ...]  # one per episode
    lengths: tuple[int, ...]
    metrics: Metrics  # with their `eval/` in front


class Evaluator(ABC):
    """Judges a policy; called by the learner's thread."""

    def describe(self) -> str:
        """One line for the header of a run."""
        return type(self).__name__

    @abstractmethod
    def evaluate(self, policy: Policy) -> Evaluation:
        """Runs greedy episodes; the same seeds every time. Raises what its `StopFlag` holds."""

    @abstractmethod
    def close(self) -> None:
        """Frees its environments; may be called twice."""
