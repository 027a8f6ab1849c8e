"""Recorded episodes: checks against the environment, and replay as steps of N environments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from border_cli.core.spaces import (
    ACTION_MASK,
    BoxSpace,
    DictSpace,
    DiscreteSpace,
    EnvSpec,
    LeafSpace,
    MultiDiscreteSpace,
    Space,
    has_masks,
    row_nbytes,
)
from border_cli.core.types import Array, Step, combine_arrays, leaves, map_array
from border_cli.errors import ConfigError

ROUNDING = 1e-4  # tolerance of bounds, relative to their distance
GROUP = 64  # episodes stepped in parallel, with one call of the step processor per step
GROUP_NBYTES = 64 * 2**20  # maximum bytes of their padded observations


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """An episode of T steps and T + 1 observations."""

    obs: Array  # [T + 1, …]
    action: NDArray[Any]  # [T] int64, or [T, A]
    reward: NDArray[np.float32]  # [T]
    terminated: NDArray[np.bool_]  # [T]
    truncated: NDArray[np.bool_]  # [T]

    def __len__(self) -> int:
        return len(self.reward)


class Checksum:
    """A checksum of a sequence of episodes, which depends only on their values."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def update_each(self, episodes: Iterable[RecordedEpisode]) -> Iterator[RecordedEpisode]:
        """Yields the episodes and adds each of them to the checksum."""
        for episode in episodes:
            columns = (episode.action, episode.reward, episode.terminated, episode.truncated)
            for column in (*leaves(episode.obs), *columns):
                self._digest.update(np.ascontiguousarray(column).data)
            yield episode

    def __str__(self) -> str:
        return self._digest.hexdigest()


def group_episodes(
    episodes: Iterable[RecordedEpisode], spec: EnvSpec
) -> Iterator[list[RecordedEpisode]]:
    """Yields groups of episodes that fit into memory together; a group has at least one."""
    row = row_nbytes(spec.observation)
    group: list[RecordedEpisode] = []
    longest = 0
    for episode in episodes:
        longest = max(longest, len(episode))
        padded = (len(group) + 1) * (longest + 1) * row
        if group and (len(group) == GROUP or padded > GROUP_NBYTES):
            yield group
            group, longest = [], len(episode)
        group.append(episode)
    if group:
        yield group


def parallel_steps(group: list[RecordedEpisode]) -> Iterator[Step]:
    """Yields the steps of N episodes as if N environments had made them in parallel.

    Finished episodes count as environments that did not move. If an episode was recorded without
    its end, its last step is marked as truncated.
    """
    lengths = np.array([len(episode) for episode in group])  # [N]
    longest = int(lengths.max())
    obs = combine_arrays(
        lambda arrays: _pad(arrays, longest + 1), [episode.obs for episode in group]
    )  # [T + 1, N, …]
    action = _pad([episode.action for episode in group], longest)  # [T, N] or [T, N, A]
    reward = _pad([episode.reward for episode in group], longest)  # [T, N]
    terminated = _pad([episode.terminated for episode in group], longest)
    truncated = _pad([episode.truncated for episode in group], longest)
    last = np.arange(longest)[:, None] == lengths - 1  # [T, N]
    truncated |= last & ~terminated
    for t in range(longest):
        moved = t < lengths  # [N]
        next_obs = _select_step(obs, t + 1)
        yield Step(
            obs=_select_step(obs, t),
            action=action[t],
            reward=reward[t],
            terminated=terminated[t],
            truncated=truncated[t],
            next_obs=next_obs,
            act_obs=next_obs,
            moved=None if moved.all() else moved,
        )


def _select_step(obs: Array, t: int) -> Array:
    return map_array(lambda array: array[t], obs)


def _pad(arrays: list[NDArray[Any]], longest: int) -> NDArray[Any]:
    """N times [T, …] -> [longest, N, …]; the zeros after the end of an episode are never read."""
    first = arrays[0]
    padded = np.zeros((longest, len(arrays), *first.shape[1:]), first.dtype)
    for i, array in enumerate(arrays):
        padded[: len(array), i] = array
    return padded


def refuse_other_spaces(
    setting: str, dataset: str, observation: Space, action: Space, spec: EnvSpec
) -> None:
    """Raises ConfigError if the observations or actions differ from those of the environment."""
    for kind, theirs, ours in (
        ("observations", observation, spec.observation),
        ("actions", action, spec.action),
    ):
        if describe_space(theirs) != describe_space(ours):
            raise ConfigError(
                f"{setting}={dataset} has {kind} {describe_space(theirs)}, but env.id={spec.id} "
                f"has {describe_space(ours)}"
            )


def describe_space(space: Space) -> str:
    """Returns the types and shapes of a space as text. Bounds of actions: see `refuse_damaged`."""
    match space:
        case DictSpace(spaces=parts):
            return (
                "{"
                + ", ".join(f"{key}: {describe_space(parts[key])}" for key in sorted(parts))
                + "}"
            )
        case BoxSpace(shape=shape, dtype=dtype):
            return f"{dtype} {list(shape)}"
        case DiscreteSpace(n=n):
            return f"Discrete({n})"
        case MultiDiscreteSpace(nvec=nvec):
            return f"MultiDiscrete({list(nvec)})"


def refuse_damaged(where: str, episode: RecordedEpisode, spec: EnvSpec) -> None:
    """Raises ConfigError if an episode is incomplete or not finite, or has invalid actions."""
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
    if has_masks(spec.observation):
        _refuse_invalid(f"{where}, actions", episode, spec.action)


def _refuse_not_finite(where: str, leaf: NDArray[Any]) -> None:
    if leaf.dtype.kind != "f":
        return
    bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)  # [T]
    if bad.any():
        step = int(bad.argmax())
        raise ConfigError(f"{where}: step {step} is not finite: {leaf[step].tolist()}")


def _refuse_invalid(where: str, episode: RecordedEpisode, space: LeafSpace) -> None:
    """Raises ConfigError for masked actions, which have no probability and no value."""
    assert isinstance(episode.obs, dict)
    mask = episode.obs[ACTION_MASK]  # [T + 1, n]
    nvec = space.nvec if isinstance(space, MultiDiscreteSpace) else (0,)
    columns = episode.action.reshape(len(episode), -1) + np.cumsum((0, *nvec[:-1]))  # [T, A]
    taken = np.take_along_axis(mask[:-1], columns, axis=1)  # [T, A]
    bad = np.append((taken != 1).any(axis=1), False) | (mask.max(axis=1) != 1)  # [T + 1]
    if bad.any():
        step = int(bad.argmax())
        action = episode.action[step].tolist() if step < len(episode) else "every action"
        raise ConfigError(
            f"{where}: step {step} has the {ACTION_MASK} {mask[step].tolist()}, which excludes "
            f"{action}; env.action_mask=false ignores masks in info"
        )


def _refuse_outside(where: str, action: NDArray[Any], space: LeafSpace) -> None:
    """Raises ConfigError for actions out of bounds, which no actor could take. The reader has
    already rejected invalid discrete actions."""
    if not isinstance(space, BoxSpace):
        return
    least, most = np.asarray(space.low), np.asarray(space.high)
    slack = ROUNDING * (most - least)
    if (action < least - slack).any() or (action > most + slack).any():
        raise ConfigError(
            f"{where}: values between {action.min(0).tolist()} and {action.max(0).tolist()} "
            f"(allowed: {least.tolist()} to {most.tolist()})"
        )
