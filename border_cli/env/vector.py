"""An environment's own vector implementation, if it does what the settings ask.

Its autoreset mode is read from it, and whatever that is, a step shows the true last observation of
an episode and the one to act on next.
"""

from __future__ import annotations

import copy
import inspect
from enum import StrEnum
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs import registration
from numpy.typing import NDArray

from border_cli.core.errors import BadStep
from border_cli.core.interfaces import Env
from border_cli.core.seeding import derived_seed
from border_cli.core.spaces import EnvSpec
from border_cli.core.types import Array, Episode, Step, leaves, map_array
from border_cli.env.answers import (
    REWARD,
    STEP,
    TERMINATED,
    TRUNCATED,
    begun,
    copied,
    info_values,
    observations,
    other_answer,
    place_of,
)
from border_cli.env.config import GymConfig
from border_cli.env.construct import closing_if_failed, construction, starting
from border_cli.env.gym_spaces import action_space, batch_of, observation_space
from border_cli.env.registered import entry_of

Vector = gym.vector.VectorEnv[Any, Any, Any]


class Autoreset(StrEnum):
    """When a vector environment begins the next episode; Gymnasium's own values."""

    next_step = "NextStep"
    same_step = "SameStep"
    disabled = "Disabled"


class NoVectorEnv(Exception):
    """The environment has no vector implementation that does what the settings ask; says why."""


def vector_entry(config: GymConfig) -> registration.EnvSpec:
    """What is registered of an environment with a vector implementation; raises `NoVectorEnv`."""
    with construction(config):
        entry = entry_of(config)
    if entry.vector_entry_point is None:
        raise NoVectorEnv("there is none")
    if config.wrappers or entry.additional_wrappers:
        raise NoVectorEnv("wrappers apply to single environments only")
    return copy.copy(entry)


def construct_vector(
    config: GymConfig, entry: registration.EnvSpec, spec: EnvSpec
) -> tuple[Vector, Autoreset]:
    """A new vector environment, not reset, and how it resets.

    Raises `NoVectorEnv` where nothing but stepping single environments gives what `spec` promises.
    Waits while another environment is constructed.
    """
    with construction(config):
        _refuse_other_limit(entry.vector_entry_point, spec)
        entry.max_episode_steps = spec.max_episode_steps
        kwargs = config.vector_arguments()
        try:
            env = gym.make_vec(entry, config.num_envs, "vector_entry_point", **kwargs)
        except TypeError as error:
            raise NoVectorEnv(f"it cannot be constructed: {error}") from error
        with closing_if_failed(spec.id, env.close):
            return env, _check(env, spec)


def _refuse_other_limit(constructor: Any, spec: EnvSpec) -> None:
    """Raises where episodes could not end as those of single environments."""
    if isinstance(constructor, str):
        constructor = registration.load_env_creator(constructor)
    try:
        limit = inspect.signature(constructor).parameters.get("max_episode_steps")
    except (TypeError, ValueError):  # of what is written in C
        limit = None
    if spec.max_episode_steps is not None and limit is None:
        raise NoVectorEnv("it does not accept max_episode_steps")
    if spec.max_episode_steps is None and limit is not None and limit.default is not None:
        raise NoVectorEnv("it truncates episodes, unlike a single environment")


def _check(env: Vector, spec: EnvSpec) -> Autoreset:
    """How it resets; raises where it differs from single environments."""
    named = env.metadata.get("autoreset_mode")
    try:
        mode = Autoreset(str(getattr(named, "value", named)))
    except ValueError as error:
        raise NoVectorEnv(f"unknown autoreset mode {named!r}") from error
    observation = observation_space(env.single_observation_space, spec.id)
    action = action_space(env.single_action_space, spec.id)
    # Compared as text: bounds are arrays.
    if str((observation, action)) != str((spec.observation, spec.action)):
        raise NoVectorEnv(f"its spaces {observation}, {action} differ from a single environment's")
    return mode


def _values_of(i: int, info: Any, names: tuple[str, ...]) -> tuple[float, ...]:
    """Those of environment i in the `info` of all, where `_name` says which have one."""
    if not isinstance(info, dict):
        return ()
    found = {
        name: info[name][i]
        for name in names
        if np.ndim(info.get(name, 0)) > 0 and info.get(f"_{name}", [True] * (i + 1))[i]
    }
    return info_values(found, names)


class GymVectorEnv(Env):
    """A vector environment for training; owns it until `close`. One thread calls it.

    Episodes have no seeds of their own here: one seed begins the N first ones, and the
    implementation draws those that follow.
    """

    def __init__(self, env: Vector, spec: EnvSpec, *, autoreset: Autoreset, first: int) -> None:
        self.num_envs = env.num_envs
        self._env: Vector | None = env
        self._id = spec.id
        self._autoreset = autoreset
        self._limit = spec.max_episode_steps
        self._info_metrics = spec.info_metrics
        self._first = first
        self._check = observations(env.single_observation_space)
        self._returns_new = getattr(env.unwrapped, "returns_new_arrays", False) is True
        self._actions = batch_of(env.single_action_space)

    def reset(self, seed: int) -> Array:
        """Starts N episodes, whatever ran before. [N, …]"""
        assert self._env is not None, "it is closed"
        with starting(self._id, self.close):
            # Below 2**31 by far: implementations count on from it and keep it in 32 bits with
            # a sign.
            self._obs = self._begun(seed=derived_seed(seed, self._first) >> 2)  # [N, …]
        self._moved: NDArray[np.bool_] | None = None  # [N]  in the coming step; None: all
        self._score = np.zeros(self.num_envs)  # [N] float64
        self._length = np.zeros(self.num_envs, np.int64)  # [N]
        return self._obs

    def step(self, action: NDArray[Any]) -> Step:
        """Acts once in each environment that moves; every array of the step is new."""
        assert self._env is not None, "it is closed"
        obs, moved, count = self._obs, self._moved, self.num_envs
        answer = self._env.step(self._actions(action))
        try:
            observation, pay, has_terminated, was_cut, info = answer
        except (TypeError, ValueError):
            raise other_answer(STEP, answer).within(f"env.id={self._id}") from None
        try:
            next_obs = self._rows(observation)
            pay = REWARD(pay, count)  # [N]
            terminated = TERMINATED(has_terminated, count).copy()  # [N]
            truncated = TRUNCATED(was_cut, count).copy()  # [N]
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
        reward = np.array(pay, np.float32)  # [N]
        self._score += pay
        self._length += 1
        if moved is not None:
            self._hold_still(~moved, reward, terminated, truncated)
        ended = terminated | truncated  # [N]
        self._refuse_longer(ended)
        act_obs = next_obs
        episodes: tuple[Episode, ...] = ()
        self._moved = None
        if np.count_nonzero(ended):
            episodes = self._finish(ended, info)
            next_obs, act_obs = self._around_end(ended, next_obs, info)
        self._obs = act_obs
        return Step(
            obs=obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            act_obs=act_obs,
            episodes=episodes,
            moved=moved,
        )

    def _hold_still(
        self,
        still: NDArray[np.bool_],
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Environments that only began their next episode have no reward and no end."""
        reward[still] = 0
        terminated[still] = truncated[still] = False
        self._score[still] = self._length[still] = 0

    def _refuse_longer(self, ended: NDArray[np.bool_]) -> None:
        """Raises where an episode goes on at the time limit."""
        if self._limit is None:
            return
        reached = self._length >= self._limit  # [N]
        if np.count_nonzero(reached) and not ended[reached].all():
            raise BadStep(
                f"env.id={self._id}: its vector implementation does not end episodes at "
                f"max_episode_steps={self._limit}. Use env.vectorization=sync"
            )

    def _finish(self, ended: NDArray[np.bool_], info: Any) -> tuple[Episode, ...]:
        """The episodes that ended; the counts of the next ones begin at 0."""
        if self._autoreset is Autoreset.same_step:  # `info` is of the next episode
            info = info.get("final_info")
        metrics = [_values_of(i, info, self._info_metrics) for i in np.flatnonzero(ended).tolist()]
        finished = np.flatnonzero(ended)
        scores, lengths = self._score[finished].tolist(), self._length[finished].tolist()
        self._score[finished] = self._length[finished] = 0
        return tuple(map(Episode, scores, lengths, metrics))

    def _around_end(
        self, ended: NDArray[np.bool_], given: Array, info: dict[str, Any]
    ) -> tuple[Array, Array]:
        """The true successors, and the next observations to act on, where episodes have `ended`."""
        match self._autoreset:
            case Autoreset.next_step:
                self._moved = ~ended  # they ignore one action while they reset
                return given, given
            case Autoreset.same_step:
                return self._with_final(ended, given, info.get("final_obs")), given
            case Autoreset.disabled:
                return given, self._begin(ended, given)

    def _with_final(self, ended: NDArray[np.bool_], given: Array, final: Any) -> Array:
        next_obs = map_array(np.copy, given)
        for i in np.flatnonzero(ended).tolist():
            if isinstance(final, dict):
                last: Any = {key: values[i] for key, values in final.items()}
            else:
                last = None if final is None else final[i]
            if last is None:
                raise BadStep(
                    f"env.id={self._id}: its vector implementation resets in the same step and "
                    "returns no final_obs. Use env.vectorization=sync"
                )
            try:
                self._check.write(next_obs, i, last)
            except BadStep as error:
                place = place_of(self._id, i, self.num_envs)
                raise error.within(f"{place}, final_obs") from None
        return next_obs

    def _begin(self, ended: NDArray[np.bool_], given: Array) -> Array:
        begun = self._begun(options={"reset_mask": ended.copy()})  # [N, …]
        act_obs = map_array(np.copy, given)
        for rows, first in zip(leaves(act_obs), leaves(begun), strict=True):
            rows[ended] = first[ended]
        return act_obs

    def _begun(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Array:
        """The observations of a reset.  [N, …]"""
        assert self._env is not None
        answer = self._env.reset(seed=seed, options=options)
        try:
            return self._rows(begun(answer))
        except BadStep as error:
            raise error.within(f"env.id={self._id}, at reset") from None

    def _rows(self, observation: Any) -> Array:
        """Observations in memory of their own: most implementations use theirs again.  [N, …]"""
        checked = self._check(observation, self.num_envs)
        return checked if self._returns_new else copied(checked)

    def close(self) -> None:
        """Frees the environments; may be called twice."""
        env, self._env = self._env, None
        if env is not None:
            env.close()
