"""Environments of Gymnasium: the recipe, and the translation for those who step their own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from border_cli.core.errors import BadStep
from border_cli.core.interfaces import Env, EnvFactory
from border_cli.core.spaces import EnvSpec, allocate
from border_cli.core.types import Array
from border_cli.env.answers import batch_size, observation_reader, observation_writer
from border_cli.env.config import GymConfig, Vectorization
from border_cli.env.construct import construct, time_limit
from border_cli.env.construct_vector import Unfit, construct_vector, vector_entry
from border_cli.env.registered import portable, register_portable
from border_cli.env.spaces import (
    action_batch,
    action_reader,
    action_space,
    observation_space,
)
from border_cli.env.sync import GymEnv
from border_cli.env.vector import GymVectorEnv

log = logging.getLogger(__name__)


class GymEnvFactory(EnvFactory):
    """A recipe for environments; holds settings only, and what it once learned of them.

    In another process the id means what it meant here, also where it was registered here alone.
    """

    def __init__(self, config: GymConfig) -> None:
        self.config = config
        self._spec: EnvSpec | None = None
        self._unfit = False  # found that there is no vector implementation to use

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": vars(self), "registered": portable(self.config.id)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state["settings"])
        register_portable(state["registered"])

    @property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment and closes it."""
        if self._spec is None:
            env = construct(self.config)
            try:
                self._spec = self._spec_of(env)
            finally:
                env.close()
        return self._spec

    def make(self, *, training: bool, render: str | None = None, first: int = 0) -> Env:
        """A fresh environment of `num_envs`. `render="human"` opens the window of the first.

        Several that train are an environment's own vector implementation where there is one that
        does what the settings ask (`env.vectorization`).
        """
        own = self._make_vector(first) if training and render is None else None
        return own or GymEnv(self.config, training=training, render=render, first=first)

    def trials(self) -> Iterator[Env]:
        one = GymEnv(replace(self.config, num_envs=1), training=True)
        self._spec = self._spec_of(one.single)
        yield one
        own = self._make_vector(first=0)
        if own is not None:
            yield own

    def _make_vector(self, first: int) -> GymVectorEnv | None:
        """The environment's own vector implementation; None where it is not to be used."""
        several = self.config.num_envs > 1 and self.config.vectorization == Vectorization.auto
        if not several or self._unfit:
            return None
        try:
            entry = vector_entry(self.config)
            spec = self.spec
            env, autoreset = construct_vector(self.config, entry, spec)
        except Unfit as reason:
            self._unfit = True
            log.debug(
                "env.id=%s: its vector implementation is not used: %s", self.config.id, reason
            )
            return None
        return GymVectorEnv(
            env,
            env_id=spec.id,
            autoreset=autoreset,
            max_episode_steps=spec.max_episode_steps,
            first=first,
        )

    def translator(self) -> GymTranslator:
        """For callers that step an environment of their own; constructs one to read its spaces."""
        env = construct(self.config)
        try:
            return GymTranslator(env.observation_space, env.action_space, str(self.config.id))
        finally:
            env.close()

    def _spec_of(self, env: gym.Env[Any, Any]) -> EnvSpec:
        env_id = str(self.config.id)
        return EnvSpec(
            id=env_id,
            observation=observation_space(env.observation_space, env_id),
            action=action_space(env.action_space, env_id),
            max_episode_steps=time_limit(self.config, env),
        )


class GymTranslator:
    """Between raw observations and actions of Gymnasium and the rows of a policy.

    Raises BadStep with the environment's id for an observation that does not fit its space.
    """

    def __init__(self, observation: gym.Space[Any], action: gym.Space[Any], env_id: str) -> None:
        self._id = env_id
        self._space = observation_space(observation, env_id)
        self._raw_space = observation
        self._write = observation_writer(observation)
        self._read_rows = observation_reader(observation, lambda i, _: f"observation {i}")
        self._read = action_reader(action)
        self._read_batch = action_batch(action)

    def batch_size(self, observation: Any) -> int | None:
        """N for a batch of N raw observations [N, …], None for one observation."""
        with self._naming_env():
            return batch_size(self._raw_space, observation)

    def observation(self, observation: Any) -> Array:
        """One raw observation as one row.  [1, …]"""
        row = allocate(self._space, 1)
        with self._naming_env():
            self._write(row, 0, observation)
        return row

    def observations(self, observations: Any, count: int) -> Array:
        """A batch of raw observations as rows.  [N, …]"""
        with self._naming_env():
            return self._read_rows(observations, count)

    def action(self, action: NDArray[Any]) -> Any:
        """One row of actions as the environment's `step` wants it."""
        return self._read(action)[0]

    def actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """N rows of actions as the `step` of a vector environment wants them.  [N, …]"""
        return self._read_batch(actions)

    @contextmanager
    def _naming_env(self) -> Iterator[None]:
        try:
            yield
        except BadStep as error:
            raise error.within(f"env.id={self._id}") from None
