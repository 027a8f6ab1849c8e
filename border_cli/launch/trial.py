"""A trial of an environment: `reset`, three `step`s, `reset` and `close`, here or on a node.

A failure is reported in one message: the call, the type and text of the exception, and the lines of
the traceback that are outside of this package and Gymnasium.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from border_cli.agent.policies import RandomPolicy
from border_cli.core.interfaces import Env, EnvFactory
from border_cli.core.seeding import Branch, derived_seed, generator
from border_cli.core.spaces import EnvSpec, has_masks
from border_cli.errors import BorderError, ConfigError, ProbeFailed
from border_cli.system.display import display_hint
from border_cli.system.machine import failed_allocation

STEPS = 3

CONSTRUCTOR = "its constructor"
EXPECTED = {  # shown if a call fails outside of the environment's own code
    "reset": "reset(*, seed, options) returns an observation and a dict",
    "step": "step(action) returns observation, reward, terminated, truncated and a dict",
}

MACHINERY = (  # prefixes of modules between this package and an environment
    *("border_cli.", "contextlib", "importlib"),
    *("gymnasium.core", "gymnasium.envs.registration", "gymnasium.vector", "gymnasium.wrappers"),
)

AUTOMATIC = "gymnasium.wrappers.common"  # module of the wrappers that Gymnasium adds by itself
Calls = Callable[[str], AbstractContextManager[None]]  # context manager for the named call


def play(env: Env, spec: EnvSpec, calls: Calls) -> None:
    """Takes a few steps between two resets, then closes `env`, even after a failure. It is not
    closed if memory runs out, or if a call hangs, because `close` usually hangs, too."""
    # The same actions and seeds in every run: trial and training do not influence each other.
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
        with suppress(Exception), calls("close"):  # raise the original failure, not that of `close`
            env.close()
        raise
    with calls("close"):
        env.close()


@contextmanager
def convert_errors(who: str, call: str) -> Iterator[None]:
    """Converts errors that an environment raises within the block to ProbeFailed."""
    try:
        yield
    except BorderError as error:
        if call == CONSTRUCTOR:
            raise  # its settings were refused
        raise ProbeFailed(str(error)) from error
    except (Exception, SystemExit) as error:
        if failed_allocation(error) is not None:
            raise  # reported later with the settings that need memory
        what = "".join(traceback.format_exception_only(error)).rstrip()
        what += _in_wrapper(error) + display_hint(what)
        lines = lines_of(traceback.walk_tb(error.__traceback__))
        if not lines and call in EXPECTED:
            what += f" (Gymnasium's {EXPECTED[call]})"
        raise ProbeFailed(f"{who}: {call} raised {what}\n{lines}".rstrip()) from error


def _in_wrapper(error: BaseException) -> str:
    """Names the wrapper that raised an error, if it was not the environment inside."""
    owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    envs: list[Any] = [owner for owner in owners if hasattr(owner, "unwrapped")]
    if not envs or envs[-1].unwrapped is envs[-1]:
        return ""
    wrapper = type(envs[-1])
    return "" if wrapper.__module__ == AUTOMATIC else f" (in the wrapper {wrapper.__name__})"


def try_factory(factory: EnvFactory, calls: Calls, *, plays: bool) -> EnvSpec:
    """Constructs and closes one environment of each kind that training creates, plays it if
    `plays`, and returns the spec."""
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
    """Tries the environments of an actor, on any machine.

    Raises ProbeFailed or ConfigError if they fail, or if their spaces differ from `spec`.
    """
    found_spec = try_factory(factory, partial(convert_errors, who), plays=plays)
    if str(found_spec) != str(spec):
        raise ConfigError(f"{who} differs between machines: {found_spec} instead of {spec}")


def lines_of(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Returns the traceback lines of the user's own code and of the code that it called."""
    relevant = [(frame, line) for frame, line in frames if not _is_machinery(frame)]
    return "".join(traceback.StackSummary.extract(iter(relevant)).format())


def _is_machinery(frame: FrameType) -> bool:
    """Returns whether a frame is in this package or in Gymnasium, except in Gymnasium's
    environments."""
    return str(frame.f_globals.get("__name__")).startswith(MACHINERY)
