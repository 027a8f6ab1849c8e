"""Environments for actors in any process, with a script for each incarnation."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.interfaces import Env, EnvFactory, Policy, StepProcessor
from border_cli.core.rows import columns_of
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Array, Beat, State, Step, Transitions
from border_cli.errors import BadStep
from border_cli.settings.run import ActorExploration
from border_cli.system.machine import BLAS_VARIABLES
from tests.support.fakes import SPEC, CountingEnv, FakePolicy, OneStep

NEVER = 1_000_000_000
DELAY = 2  # steps
BUILDING = 0  # the step number that stands for the constructor


def fail(step: int) -> None:
    raise RuntimeError(f"the simulator broke at step {step}")


def misbehave(_: int) -> None:
    raise BadStep("it is wrong")


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(_: int) -> None:
    threading.Event().wait()  # THE LINE THAT BLOCKS


def hang_in_c(_: int) -> None:
    """Holds the interpreter lock forever, so that no other thread of the process can run."""
    nobody_writes, _writer = os.pipe()
    ctypes.PyDLL(None).read(nobody_writes, ctypes.create_string_buffer(1), 1)


def leave(_: int) -> None:
    sys.exit("enough")


def vanish(_: int) -> None:
    os._exit(0)


def complain(_: int) -> None:
    logging.getLogger("simulator").warning("the fuel is at %d %%", 3)


def complain_badly(_: int) -> None:
    logging.getLogger("simulator").warning("the fuel is at %d %%", "three")


def be_signalled(_: int) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), signum)


def describe(_: int) -> str:
    """Returns the nice value of the process and its environment variables for BLAS threads."""
    return f"{os.nice(0)} {' '.join(os.environ[name] for name in BLAS_VARIABLES)}"


def dawdle(_: int) -> None:
    threading.Event().wait(0.7)


def wait_for_file(file: Path, _: int) -> None:
    deadline_s = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline_s:
        threading.Event().wait(0.01)


def halve_the_smallest(_: int) -> str:
    """Returns half of the smallest normal number, which is 0 if denormals are flushed."""
    return str(np.finfo(np.float32).tiny * np.ones(9, np.float32) / 2)


def rank(_: int) -> str:
    """Returns the nice value of the process."""
    return str(os.nice(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The script of one environment: `deed` at step `at`, `at_close` at its end; both picklable."""

    deed: Callable[[int], Any] | None = None
    at: int = BUILDING
    at_close: Callable[[int], Any] | None = None


class Delayed(StepProcessor):
    """A step processor that returns transitions two steps late, like a window of three steps."""

    def __init__(self) -> None:
        self._waiting: list[Transitions] = []

    def process(self, step: Step) -> Transitions:
        rows = OneStep().process(step)
        self._waiting.append(rows)
        if len(self._waiting) > DELAY:
            return self._waiting.pop(0)
        empty = slice(0, 0)
        assert isinstance(rows.obs, np.ndarray)
        assert isinstance(rows.next_obs, np.ndarray)
        return Transitions(
            obs=rows.obs[empty],
            action=rows.action[empty],
            reward=rows.reward[empty],
            discount=rows.discount[empty],
            next_obs=rows.next_obs[empty],
        )

    def state_dict(self) -> State:
        return {"waiting": [columns_of(rows) for rows in self._waiting]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._waiting = [Transitions(**columns) for columns in state["waiting"]]


class ScriptedEnv(CountingEnv):
    """A counting environment that follows its script and writes notes for the test into files."""

    def __init__(self, life: Life, *, number: int, folder: Path, num_envs: int = 1) -> None:
        super().__init__(num_envs=num_envs, on_step=self._on)
        self._life = life
        self._number = number
        self._folder = folder
        self._note("pid", os.getpid())
        self._on(BUILDING)

    def _on(self, step: int) -> None:
        if self._life.deed is not None and step == self._life.at:
            self._note("deed", step)
            self._note("answer", self._life.deed(step))

    def _note(self, what: str, value: object) -> None:
        partial_name = self._folder / f"{what}-{self._number}.part"
        partial_name.write_text(str(value))
        partial_name.rename(self._folder / f"{what}-{self._number}")

    def reset(self, seed: int) -> Array:
        self._note("seed", seed)
        return super().reset(seed)

    def close(self) -> None:
        super().close()
        if self._life.at_close is not None:
            self._life.at_close(0)
        self._note("closed", "yes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedEnvFactory(EnvFactory):
    """A factory that assigns the scripts in order, across processes; later envs have none."""

    folder: Path  # empty at first
    lives: tuple[Life, ...] = ()
    num_envs: int = 1

    @property
    def spec(self) -> EnvSpec:
        return SPEC

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        del training, render, first
        number = next(number for number in count() if self._claimed(number))
        life = self.lives[number] if number < len(self.lives) else Life()
        env = ScriptedEnv(life, number=number, folder=self.folder, num_envs=self.num_envs)
        if beat is not None:
            beat()
        return env

    def _claimed(self, number: int) -> bool:
        try:
            (self.folder / f"made-{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def noted(self, what: str) -> list[str]:
        """Returns the environments' notes of this name, in the order of creation."""
        files = self.folder.glob(f"{what}-*")
        files_by_number = {int(file.name.split("-")[1]): file for file in files if not file.suffix}
        return [files_by_number[number].read_text() for number in sorted(files_by_number)]

    def wait_for(self, what: str, times: int = 1) -> list[str]:
        """Waits until at least `times` environments have a note of this name; returns the notes."""
        pause = threading.Event()
        while len(notes := self.noted(what)) < times:
            pause.wait(0.005)
        return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class CalmEnvFactory(EnvFactory):
    """A factory of counting environments without scripts."""

    num_envs: int = 1
    episode: int = 10

    @property
    def spec(self) -> EnvSpec:
        return SPEC

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        del training, render, first, beat
        return CountingEnv(num_envs=self.num_envs, episode=self.episode)


class TellingPolicy(FakePolicy):
    """A policy whose actions are its exploration in hundredths."""

    def __init__(self, exploration: ActorExploration) -> None:
        super().__init__()
        if isinstance(exploration, Mapping):
            exploration = exploration["noise_std"]
        self._action = -1 if exploration is None else round(100 * exploration)

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        return super().act(obs, explore=explore) + self._action


class TellingPolicyFactory:
    """A factory of policies whose actions reveal their exploration, in any process."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        del rng
        return TellingPolicy(exploration)


class BoundPolicy(FakePolicy):
    """A policy whose actions are 1 if the acting thread called `bind_thread`, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self._thread: int | None = None

    def bind_thread(self) -> None:
        assert self._thread is None, "bound twice"
        self._thread = threading.get_ident()

    def act(self, obs: Array, *, explore: bool) -> NDArray[Any]:
        return super().act(obs, explore=explore) + int(self._thread == threading.get_ident())


class BoundPolicyFactory:
    """A factory of policies whose actions show whether they were bound, in any process."""

    def __call__(self, rng: np.random.Generator, exploration: ActorExploration = None) -> Policy:
        del rng, exploration
        return BoundPolicy()
