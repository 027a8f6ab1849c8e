"""What the parts promise each other. A missing method is refused at construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import CheckpointError
from border_cli.core.returns import Moments
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import (
    Array,
    Batch,
    Beat,
    Metrics,
    Snapshot,
    State,
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

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most keep nothing per episode
        """Drops what it keeps of these of the N environments: their episodes begin anew."""

    def state_dict(self) -> State:
        """What coming actions depend on beside the weights: generators, noise that lasts."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` gave."""


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

    def observe(self, transitions: Transitions) -> None:  # noqa: B027 - most keep no statistics
        """Sees each row once, as it comes into the replay buffer: for running statistics. [M]"""

    def observe_returns(self, returns: Moments) -> None:  # noqa: B027 - most keep no statistics
        """Sees the running discounted returns of each message once, where `needs_returns` of its
        settings says so; those of a data set before the first update."""

    @property
    @abstractmethod
    def opt_steps(self) -> int:
        """Optimisation steps made so far."""

    @property
    @abstractmethod
    def device_name(self) -> str:
        """Where the updates run: cpu, cuda or cuda:1."""

    @property
    def num_threads(self) -> int:
        """With how many threads updates are computed on the CPU."""
        return 1

    @abstractmethod
    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        """Copies of what acting needs (Border's `model_info`)."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, strings, and dicts and lists of these: readable with weights_only."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave: another agent of the same settings goes on to the bit.

        Raises CheckpointError where it does not fit.
        """

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Takes the weights alone out of another agent's state: training begins anew with them.

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

    def state_dict(self) -> State:
        """What it takes to come back to this moment: of each running episode its seed and its
        actions so far, and what is acted on next."""
        return {}

    def resume(
        self, seed: int, state: Mapping[str, Any], beat: Beat = lambda: None
    ) -> tuple[Array, list[int]]:
        """In place of `reset`, which had this seed: goes on where `state_dict` was taken.

        Replays the actions of each running episode and compares what comes of it. Returns what to
        act on next [N, …], and the environments whose episode could not be continued and began
        anew, with a seed that no episode had before.
        """
        del state, beat
        return self.reset(derived_seed(seed, 1)), list(range(self.num_envs))


class Translator(Protocol):
    """Between raw observations or actions of an environment and the rows of a policy."""

    def batch_size(self, observation: Any) -> int | None:
        """N for a batch of N raw observations [N, …], None for one observation. Raises BadStep for
        any other shape."""

    def observation(self, observation: Any) -> Array:
        """One raw observation as one row.  [1, …]"""

    def observations(self, observations: Any, count: int) -> Array:
        """A batch of raw observations as rows.  [N, …]"""

    def action(self, action: NDArray[Any]) -> Any:
        """One row of actions as the environment's `step` wants it."""

    def actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """N rows of actions as the `step` of a vector environment wants them.  [N, …]"""


class EnvFactory(ABC):
    """A picklable recipe for environments."""

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment to read them."""

    @abstractmethod
    def make(self, *, training: bool, render: str | None = None, first: int = 0) -> Env:
        """A fresh environment of `num_envs`; its seeds are those of environments `first`, …"""

    def trials(self) -> Iterator[Env]:
        """Fresh environments to be tried before a run, one of each kind that training makes; the
        caller closes each."""
        yield self.make(training=True)

    @abstractmethod
    def translator(self) -> Translator:
        """For callers that step an environment of their own."""


class StepProcessor(ABC):
    """Turns the steps of one actor's environments into rows; owned by that actor."""

    @abstractmethod
    def process(self, step: Step) -> Transitions:
        """M rows; 0 while an n-step window fills, several when an episode ends."""

    def state_dict(self) -> State:
        """What waits for its successors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - see above
        """Restores what `state_dict` gave."""

    def forget(self, envs: Sequence[int]) -> None:  # noqa: B027 - most keep nothing per episode
        """Drops what waits of these environments: their episodes begin anew."""


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

    def extended(self, policy: Policy, evaluation: Evaluation) -> Evaluation:
        """An evaluation of this policy with as many episodes more as `evaluate` runs, none of them
        twice; the same one where an evaluator has no others."""
        del policy
        return evaluation

    @abstractmethod
    def close(self) -> None:
        """Frees its environments; may be called twice."""
