"""A trial of an environment: `reset`, three `step`s, `reset` and `close`, here or on a node.

A failure is one message: call, exception type and text, traceback lines outside this package and
Gymnasium.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import FrameType

from border_cli.agent.policies import RandomPolicy
from border_cli.core.interfaces import Env, EnvFactory
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.errors import BorderError, ConfigError, ProbeFailed
from border_cli.system.machine import failed_allocation

STEPS = 3

CONSTRUCTOR = "its constructor"
EXPECTED = {  # for a call that fails outside of the environment's own lines
    "reset": "reset(*, seed, options) returns an observation and a dict",
    "step": "step(action) returns observation, reward, terminated, truncated and a dict",
}

MACHINERY = (  # beginnings of modules between us and an environment
    *("border_cli.", "contextlib", "importlib"),
    *("gymnasium.core", "gymnasium.envs.registration", "gymnasium.vector", "gymnasium.wrappers"),
)

Calls = Callable[[str], AbstractContextManager[None]]  # the block of a call, by its name


def play(env: Env, spec: EnvSpec, calls: Calls) -> None:
    """A few steps between two resets; `env` is closed whatever comes of it, unless a call hangs:
    then `close` mostly hangs, too."""
    # The same for every run: what is learned from does not depend on it, nor it on that.
    masked = has_masks(spec.observation)
    policy = RandomPolicy(spec.action, generator(0, Branch.PROBE), masked=masked)
    try:
        with calls("reset"):
            obs = env.reset(derived_seed(0, Branch.PROBE, 0))
        for _ in range(STEPS):
            action = policy.act(obs, explore=True)
            with calls("step"):
                obs = env.step(action).act_obs
        with calls("reset"):
            env.reset(derived_seed(0, Branch.PROBE, 1))
    except (ProbeFailed, KeyboardInterrupt):
        with suppress(Exception), calls("close"):  # the failure stays the one that is raised
            env.close()
        raise
    with calls("close"):
        env.close()


@contextmanager
def called(who: str, call: str) -> Iterator[None]:
    """The block in which an environment is called; what it raises becomes ProbeFailed."""
    try:
        yield
    except BorderError as error:
        if call == CONSTRUCTOR:
            raise  # its settings are refused
        raise ProbeFailed(str(error)) from error
    except (Exception, SystemExit) as error:
        if failed_allocation(error) is not None:
            raise  # the settings that take memory are named with it
        what = "".join(traceback.format_exception_only(error)).rstrip()
        lines = lines_of(traceback.walk_tb(error.__traceback__))
        if not lines and call in EXPECTED:
            what += f" (Gymnasium's {EXPECTED[call]})"
        raise ProbeFailed(f"{who}: {call} raised {what}\n{lines}".rstrip()) from error


def tried(factory: EnvFactory, calls: Calls, *, plays: bool) -> EnvSpec:
    """The spec of environments of each kind that training makes, once they are constructed, played
    where `plays` says so, and closed."""
    trials = factory.trials()
    while True:
        with calls(CONSTRUCTOR):
            env, spec = next(trials, None), factory.spec
        if env is None:
            return spec
        if plays:
            play(env, spec, calls)
        else:
            env.close()


def try_environments(who: str, factory: EnvFactory, spec: EnvSpec, *, plays: bool) -> None:
    """The environments of an actor, on any machine.

    Raises ProbeFailed or ConfigError where they fail, or have other spaces than `spec`.
    """
    found = tried(factory, partial(called, who), plays=plays)
    if str(found) != str(spec):
        raise ConfigError(f"{who} is another one there: {found}, where here it is {spec}")


def lines_of(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Traceback lines of the user's own code, and of what that called."""
    others = [(frame, line) for frame, line in frames if not _is_machinery(frame)]
    return "".join(traceback.StackSummary.extract(iter(others)).format())


def _is_machinery(frame: FrameType) -> bool:
    """Ours, or the way from there through Gymnasium, whose own environments are none of it."""
    return str(frame.f_globals.get("__name__")).startswith(MACHINERY)
