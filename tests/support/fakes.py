"""Fakes: small working environments, agents, buffers and other parts of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import (
    Agent,
    Env,
    EnvFactory,
    Evaluation,
    Evaluator,
    FrozenRows,
    Policy,
    ReplayBuffer,
    StepProcessor,
)
from border_cli.core.output import Progress, Recorder, RecordStep, RunState, SaveReport
from border_cli.core.rows import columns_of, transitions_of
from border_cli.core.spaces import DiscreteSpace, EnvSpec
from border_cli.core.types import (
    Array,
    Batch,
    Beat,
    Episode,
    Metrics,
    Snapshot,
    State,
    Step,
    Transitions,
    Update,
    map_array,
)
from border_cli.settings.run import ActorExploration
from tests.support.spaces import box

SPEC = EnvSpec(
    id="Counting",
    observation=box((1,), high=1e9),
    action=DiscreteSpace(2),
    max_episode_steps=None,
)


class FakeClock:
    """A clock that moves only when a test sets `time_s`."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s


class CountingEnv(Env):
    """An environment that observes its number of steps; episodes last `episode` steps."""

    def __init__(
        self,
        *,
        num_envs: int = 1,
        episode: int = 10,
        on_step: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.num_envs = num_envs
        self.closed = False
        self.seeds: list[int] = []
        self._episode = episode
        self._on_step = on_step
        self._count = 0

    def _obs(self) -> NDArray[Any]:
        return np.full((self.num_envs, 1), self._count, np.float32)

    def reset(self, seed: int) -> Array:
        self.seeds.append(seed)
        return self._obs()

    def step(self, action: NDArray[Any]) -> Step:
        obs = self._obs()
        self._count += 1
        self._on_step(self._count)
        ended = self._count % self._episode == 0
        return Step(
            obs=obs,
            action=action,
            reward=np.ones(self.num_envs, np.float32),
            terminated=np.full(self.num_envs, ended),
            truncated=np.zeros(self.num_envs, bool),
            next_obs=self._obs(),
            act_obs=self._obs(),
            episodes=(Episode(float(self._episode), self._episode),) * self.num_envs
            if ended
            else (),
        )

    def close(self) -> None:
        self.closed = True

    def state_dict(self) -> State:
        return {"count": self._count}

    def resume(
        self,
        seed: int,
        state: Mapping[str, Any],
        beat: Beat = lambda: None,  # noqa: ARG002
    ) -> tuple[Array, list[int]]:
        self._count = state["count"]
        return self.reset(seed), []


@dataclass
class CountingEnvFactory(EnvFactory):
    """A factory that creates the k-th environment with `make_env(k)`."""

    make_env: Callable[[int], Env] = lambda _: CountingEnv()
    made: list[Env] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    @property
    def spec(self) -> EnvSpec:
        return SPEC

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        del training, render, first, beat
        with self.lock:
            env = self.make_env(len(self.made))
            self.made.append(env)
        return env


class OneStep(StepProcessor):
    """A step processor for 1-step transitions."""

    def process(self, step: Step) -> Transitions:
        return Transitions(
            obs=step.obs,
            action=step.action,
            reward=step.reward,
            discount=np.where(step.terminated, 0.0, 0.99).astype(np.float32),
            next_obs=step.next_obs,
        )


class FakePolicy(Policy):
    """A policy that always returns action 0 and records its snapshots and calls of `forget`."""

    def __init__(self) -> None:
        self.loaded: list[Snapshot] = []
        self.forgot: list[list[int]] = []

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        assert isinstance(obs, np.ndarray)
        assert self.loaded, "acted before any weights were loaded"
        del explore
        return np.zeros(len(obs), np.int64)

    def load_snapshot(self, snapshot: Snapshot) -> None:
        self.loaded.append(snapshot)

    def forget(self, envs: Sequence[int]) -> None:
        self.forgot.append(list(envs))


class FakePolicyFactory:
    """A factory that stores every policy it creates, with its exploration."""

    def __init__(self) -> None:
        self.made: list[tuple[FakePolicy, ActorExploration]] = []

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        del rng
        policy = FakePolicy()
        self.made.append((policy, exploration))
        return policy


class FakeAgent(Agent):
    """An agent that only counts its updates; the loss of update k is `loss(k)`."""

    def __init__(self, loss: Callable[[int], float] = lambda _: 0.5) -> None:
        self.batches: list[Batch] = []
        self.factory = FakePolicyFactory()
        self._loss = loss
        self._opt_steps = 0

    @property
    def policy_factory(self) -> FakePolicyFactory:
        return self.factory

    @property
    def device_name(self) -> str:
        return "cpu"

    def update(self, batch: Batch) -> Update:
        loss = self._loss(self._opt_steps + 1)
        self._opt_steps += 1
        self.batches.append(batch)
        return Update(metrics={"loss": loss}, td_error=lambda: np.zeros(len(batch)))

    @property
    def opt_steps(self) -> int:
        return self._opt_steps

    def snapshot(self, *, env_steps: int = 0, warm_up: bool = False) -> Snapshot:
        arrays = {"w": np.full(1, self._opt_steps)}
        return Snapshot(
            opt_steps=self._opt_steps, env_steps=env_steps, warm_up=warm_up, arrays=arrays
        )

    def state_dict(self) -> dict[str, Any]:
        return {"opt_steps": self._opt_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._opt_steps = state["opt_steps"]


def copied(rows: Transitions) -> Transitions:
    """Returns copies of the rows: a manager may overwrite the arrays it returned."""
    columns = {name: column.copy() for name, column in columns_of(rows).items()}
    return transitions_of(columns)


@dataclass
class NoRows:
    """A snapshot of the buffer with placeholder rows, which no test loads."""

    oldest: int
    first: int
    end: int

    def take(self) -> list[NDArray[Any]] | None:
        return [np.zeros(self.end - self.first)] if self.first < self.end else None

    def release(self) -> None:
        pass


class ListBuffer(ReplayBuffer):
    """A replay buffer that stores every push in a list and samples from the newest."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self.pushed: list[Transitions] = []
        self._capacity = capacity
        self._rows = 0

    def push(self, transitions: Transitions) -> None:
        self.pushed.append(copied(transitions))
        self._rows += len(transitions)

    def sample(self, batch_size: int) -> Batch:
        index = np.zeros(batch_size, np.int64)
        rows = self.rows(index)
        return Batch(
            **{column.name: getattr(rows, column.name) for column in fields(rows)},
            weight=np.ones(batch_size, np.float32),
            index=index,
        )

    def __len__(self) -> int:
        return min(self._rows, self._capacity)

    @property
    def capacity(self) -> int:
        return self._capacity

    def rows(self, index: NDArray[np.int64]) -> Transitions:
        newest = self.pushed[-1]
        return Transitions(
            obs=map_array(lambda array: array[index], newest.obs),
            action=newest.action[index],
            reward=newest.reward[index],
            discount=newest.discount[index],
            next_obs=map_array(lambda array: array[index], newest.next_obs),
        )

    def freeze(self, first: int) -> FrozenRows:
        oldest = self._rows - len(self)
        return NoRows(oldest, max(first, oldest), self._rows)

    def state_dict(self) -> State:
        return {"rows_pushed": self._rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = state["rows_pushed"]

    def load_rows(self, first: int, chunk: list[NDArray[Any]]) -> None:
        raise AssertionError(
            f"this buffer saves no rows, but rows from {first} on were loaded: {chunk}"
        )


class ScriptedEvaluator(Evaluator):
    """An evaluator that returns scores from a list in order, then repeats the last."""

    def __init__(self, scores: list[float] | None = None) -> None:
        self.scores = scores or [1.0]
        self.policies: list[int] = []  # updates of the evaluated policies
        self.closed = False

    def evaluate(self, policy: Policy) -> Evaluation:
        assert isinstance(policy, FakePolicy)
        self.policies.append(policy.loaded[-1].opt_steps)
        score = self.scores[min(len(self.policies), len(self.scores)) - 1]
        return Evaluation(
            score=score, returns=(score,), lengths=(1,), metrics={"eval/return": score}
        )

    def close(self) -> None:
        self.closed = True


class ListRecorder(Recorder):
    """A recorder that stores rows in a list; `fail` is called before every row and may raise."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        self.rows: list[tuple[RecordStep, dict[str, float], bool]] = []
        self.shown: list[Progress] = []
        self.closed = False
        self._fail = fail

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        self._fail()
        self.rows.append((step, dict(metrics), final))

    def show(self, progress: Progress) -> None:
        self.shown.append(progress)

    def close(self) -> None:
        self.closed = True

    def of(self, name: str) -> list[tuple[int, float]]:
        """Returns (opt_steps, value) of every row with this metric."""
        return [(step.opt_steps, row[name]) for step, row, _ in self.rows if name in row]


class MemoryCheckpoints:
    """A checkpoint store in memory; `fail` is called before every write and may raise OSError."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        self.saved: list[int] = []
        self.states: list[RunState] = []
        self.best: list[tuple[int, float]] = []
        self.busy = False  # set by a test to make saves be skipped
        self.closed = False
        self.report = SaveReport()
        self._fail = fail

    def save(self, state: RunState) -> bool:
        assert state.agent["opt_steps"] == state.counters["opt_steps"]
        if self.busy:
            return False
        if self._could_write():
            self.saved.append(int(state.counters["opt_steps"]))
            self.states.append(state)
            self.report = replace(self.report, written=self.report.written + 1)
        return True

    def save_best(
        self, agent: Mapping[str, Any], counters: Mapping[str, float], evaluation: Evaluation
    ) -> None:
        assert agent["opt_steps"] == counters["opt_steps"]
        if self._could_write():
            self.best.append((int(counters["opt_steps"]), evaluation.score))

    def _could_write(self) -> bool:
        try:
            self._fail()
        except OSError as error:
            failures = self.report.failures + 1
            self.report = replace(self.report, failures=failures, problem=str(error))
            return False
        self.report = replace(self.report, problem=None)
        return True

    def folder(self, opt_steps: int) -> Path:
        return Path(f"checkpoint-{opt_steps}")

    def check(self) -> None:
        pass

    def wait(self, timeout_s: float | None = None) -> bool:
        del timeout_s
        return True

    def close(self) -> None:
        self.closed = True
