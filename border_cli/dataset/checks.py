"""What makes a data set unfit for a run, said before anything is learned from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.errors import ConfigError
from border_cli.core.spaces import (
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
)
from border_cli.core.types import leaves
from border_cli.dataset.episodes import RecordedEpisode

ROUNDING = 1e-4  # of the distance between two bounds


def refuse_other_spaces(
    setting: str, dataset: str, observation: Space, action: Space, spec: EnvSpec
) -> None:
    """Raises ConfigError where observations or actions are not those of the environment."""
    for what, theirs, ours in (
        ("observations", observation, spec.observation),
        ("actions", action, spec.action),
    ):
        if form(theirs) != form(ours):
            raise ConfigError(
                f"{setting}={dataset} has {what} {form(theirs)}, but env.id={spec.id} has "
                f"{form(ours)}"
            )


def form(space: Space) -> str:
    """What must be equal of two spaces; bounds may differ, within which `refuse_damaged` looks."""
    match space:
        case DictSpace(spaces=parts):
            return "{" + ", ".join(f"{key}: {form(parts[key])}" for key in sorted(parts)) + "}"
        case BoxSpace(shape=shape, dtype=dtype):
            return f"{dtype} {list(shape)}"
        case DiscreteSpace(n=n):
            return f"Discrete({n})"
        case MultiDiscreteSpace(nvec=nvec):
            return f"MultiDiscrete({list(nvec)})"


def refuse_damaged(where: str, episode: RecordedEpisode, spec: EnvSpec) -> None:
    """Raises ConfigError where an episode has holes, a NaN, or actions that do not exist."""
    steps = len(episode)
    columns = {
        "observations": (episode.obs, steps + 1),
        "actions": (episode.action, steps),
        "terminations": (episode.terminated, steps),
        "truncations": (episode.truncated, steps),
        "rewards": (episode.reward, steps),
    }
    for name, (column, expected) in columns.items():
        for leaf in leaves(column):
            if len(leaf) != expected:
                raise ConfigError(f"{where} has {len(leaf)} {name} for {steps} rewards")
            _refuse_not_finite(f"{where}, {name}", leaf)
    _refuse_outside(f"{where}, actions", episode.action, spec.action)


def _refuse_not_finite(where: str, leaf: NDArray[Any]) -> None:
    if leaf.dtype.kind != "f":
        return
    bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [T]
    if bad.any():
        step = int(bad.argmax())
        raise ConfigError(f"{where}: step {step} is not finite: {leaf[step].tolist()}")


def _refuse_outside(where: str, action: NDArray[Any], space: LeafSpace) -> None:
    """Choices that do not exist would be found by torch alone, in words of its own; actions beyond
    the bounds would teach critics about what no actor can do."""
    if isinstance(space, BoxSpace):
        least, most = np.asarray(space.low), np.asarray(space.high)
    else:
        counts = np.array(space.n if isinstance(space, DiscreteSpace) else space.nvec)
        least, most = np.zeros_like(counts), counts - 1
    slack = ROUNDING * (most - least)
    if (action < least - slack).any() or (action > most + slack).any():
        raise ConfigError(
            f"{where}: values between {action.min(0).tolist()} and {action.max(0).tolist()} "
            f"(allowed: {least.tolist()} to {most.tolist()})"
        )
