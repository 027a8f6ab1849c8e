"""The factory of Gymnasium environments."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from border_cli.core.interfaces import Env, EnvFactory, GoalRewards
from border_cli.core.spaces import ACTION_MASK, EnvSpec, has_masks
from border_cli.core.types import Beat
from border_cli.env.config import GymConfig, Vectorization
from border_cli.env.construct import (
    construct,
    left_out,
    portable,
    register_portable,
    stacks_images,
    time_limit,
)
from border_cli.env.gym_env import GymEnv
from border_cli.env.gym_spaces import raw_spaces
from border_cli.env.step_results import unpack_reset
from border_cli.errors import BadStep

if TYPE_CHECKING:
    from border_cli.env.own_generators import GeneratorFinder

log = logging.getLogger(__name__)


class MaskFinder(gym.Wrapper[Any, Any, Any, Any]):
    """Detects action masks in the `info` of `reset`. Once it has found one, `step` does nothing.

    The trial of the environment acts without masks and could otherwise take an invalid action.
    """

    found = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._obs, info = unpack_reset(self.env.reset(seed=seed, options=options))
        if isinstance(info, Mapping) and ACTION_MASK in info:
            self.found = self._is_mask(info[ACTION_MASK])
        return self._obs, info

    def _is_mask(self, value: Any) -> bool:
        # imported late, as below: only some environments need it
        from border_cli.env.masks import MaskReader

        try:
            MaskReader(self.env.action_space)(value)
        except BadStep as error:
            log.warning("%s is ignored: %s", self.env, error)
            return False
        return True

    def step(self, action: Any) -> Any:
        return (self._obs, 0.0, False, False, {}) if self.found else self.env.step(action)


class GymEnvFactory(EnvFactory):
    """A picklable factory of environments. Holds only settings and values derived from them.

    Pickles the registration of the id, too, for processes in which the id is unknown.
    """

    def __init__(self, config: GymConfig) -> None:
        self.config = config

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": vars(self), "registered": portable(self.config.id)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state["settings"])
        register_portable(state["registered"])

    @staticmethod
    def refuse_saved_id(env_id: str, setting: str) -> None:
        """Raises ConfigError if a saved id would call something that is not allowed."""
        from border_cli.env.saved_id import refuse_saved_id

        refuse_saved_id(env_id, setting)

    @cached_property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first access constructs an environment and closes it."""
        with closing(construct(self.config)) as env:
            return self._spec_of(env)

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        """Constructs `num_envs` new environments. `render="human"` opens a window for the first.

        For training, uses EnvPool, or the environment's own vector implementation if there is one
        that supports the settings (`env.vectorization`).
        """
        env = self._make_vector(first) if training and render is None else None
        return env or GymEnv(self.config, training=training, render=render, first=first, beat=beat)

    def trials(self) -> Iterator[Env]:
        if self.config.vectorization == Vectorization.envpool:
            from border_cli.env.envpool import refuse_unsupported

            refuse_unsupported(self.config)
        env = GymEnv(replace(self.config, num_envs=1), training=True)
        self.spec = self._spec_of(env.envs[0])
        generator_finder = self._add_generator_finder(env)
        mask_finder = self._add_mask_finder(env)
        yield env
        self._note_generators(generator_finder)
        if mask_finder is not None and mask_finder.found:
            self.config = replace(self.config, action_mask=True)
            env = GymEnv(replace(self.config, num_envs=1), training=True)
            self.spec = self._spec_of(env.envs[0])
            generator_finder = self._add_generator_finder(env)  # no step has reached the other one
            yield env
            self._note_generators(generator_finder)
        vector_env = self._make_vector(first=0)
        if vector_env is not None:
            yield vector_env

    def _add_generator_finder(self, env: GymEnv) -> GeneratorFinder | None:
        """Adds a wrapper that detects draws from global generators, unless the setting is fixed."""
        if self.config.own_generators is not None:
            return None
        from border_cli.env.own_generators import GeneratorFinder

        finder = env.envs[0] = GeneratorFinder(env.envs[0], str(self.config.id))
        return finder

    def _note_generators(self, finder: GeneratorFinder | None) -> None:
        """Requires separate generators if the environment has drawn from the global ones."""
        if finder is not None and finder.found:
            self.config = replace(self.config, own_generators=True)
            self.spec = replace(self.spec, own_generators=True)

    def _add_mask_finder(self, env: GymEnv) -> MaskFinder | None:
        """Adds a wrapper that detects action masks, unless it is known whether there are any."""
        is_known = self.config.action_mask is not None or has_masks(self.spec.observation)
        if is_known or isinstance(env.envs[0].action_space, gym.spaces.Box):
            return None
        finder = env.envs[0] = MaskFinder(env.envs[0])
        return finder

    def _make_vector(self, first: int) -> Env | None:
        """Constructs EnvPool's or the environment's own vector implementation; None if it cannot be
        used."""
        if self.config.vectorization == Vectorization.envpool:
            from border_cli.env.envpool import PoolVector
            from border_cli.env.vector import GymVectorEnv

            pool = PoolVector(self.config, self.spec)
            return GymVectorEnv(pool, self.spec, first=first, raw=self.spec.raw)
        if self.config.num_envs == 1 or self.config.vectorization == Vectorization.sync:
            return None
        from border_cli.env.vector import GymVectorEnv, NoVectorEnv, construct_vector

        try:
            env = construct_vector(self.config, lambda: self.spec)
        except NoVectorEnv as reason:
            log.debug("env.id=%s: no vector implementation is used: %s", self.config.id, reason)
            return None
        return GymVectorEnv(env, self.spec, first=first)

    def goal_rewards(self) -> GoalRewards:
        """Constructs an environment that only computes goal rewards and is never stepped."""
        from border_cli.env.goals import GymGoalRewards, refuse_no_goals

        refuse_no_goals(self.spec)
        self.config.refuse_beside(
            ["frame_skip", "reward_weights"],
            "cannot be set with replay_buffer=hindsight: compute_reward returns the reward of a "
            "single step without weights",
        )
        return GymGoalRewards(construct(self.config), str(self.config.id))

    def _spec_of(self, env: gym.Env[Any, Any]) -> EnvSpec:
        env_id = str(self.config.id)
        raw = raw_spaces(env.observation_space, env.action_space, env_id)
        return EnvSpec(
            env_id,
            *raw.converted,
            time_limit(self.config, env),
            stacked=self.config.frame_stack > 1 or stacks_images(env),
            info_metrics=self.config.recorded_info,
            human_scores=self.config.human_scores,
            own_generators=self.config.own_generators is True,
            raw=raw,
            left_out=left_out(env),
        )
