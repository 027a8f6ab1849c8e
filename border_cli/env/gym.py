"""The recipe of Gymnasium environments."""

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
from border_cli.env.answers import begun
from border_cli.env.config import GymConfig, Vectorization
from border_cli.env.construct import (
    construct,
    portable,
    register_portable,
    stacks_images,
    time_limit,
)
from border_cli.env.gym_env import GymEnv
from border_cli.env.gym_spaces import raw_spaces
from border_cli.errors import BadStep

if TYPE_CHECKING:
    from border_cli.env.own_generators import GeneratorFinder

log = logging.getLogger(__name__)


class MaskFinder(gym.Wrapper[Any, Any, Any, Any]):
    """Looks for action masks in the `info` of `reset`; once there are some, `step` does nothing.

    Whoever tries the environment acts without them and could take an invalid action.
    """

    found = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._obs, info = begun(self.env.reset(seed=seed, options=options))
        if isinstance(info, Mapping) and ACTION_MASK in info:
            self.found = self._is_mask(info[ACTION_MASK])
        return self._obs, info

    def _is_mask(self, given: Any) -> bool:
        # imported late, as all below: few environments need it
        from border_cli.env.masks import MaskReader

        try:
            MaskReader(self.env.action_space)(given)
        except BadStep as error:
            log.warning("%s is ignored: %s", self.env, error)
            return False
        return True

    def step(self, action: Any) -> Any:
        return (self._obs, 0.0, False, False, {}) if self.found else self.env.step(action)


class GymEnvFactory(EnvFactory):
    """A recipe for environments; holds settings only, and what follows from them.

    In another process the id means what it meant here, also where it was registered here alone.
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
        """Raises ConfigError where a saved folder may not name what the id calls."""
        from border_cli.env.saved_id import refuse_saved_id

        refuse_saved_id(env_id, setting)

    @cached_property
    def spec(self) -> EnvSpec:
        """Spaces and time limit; the first call constructs one environment and closes it."""
        with closing(construct(self.config)) as env:
            return self._spec_of(env)

    def make(
        self, *, training: bool, render: str | None = None, first: int = 0, beat: Beat | None = None
    ) -> Env:
        """A fresh environment of `num_envs`. `render="human"` opens the window of the first.

        Several that train are an environment's own vector implementation where there is one that
        does what the settings ask (`env.vectorization`).
        """
        own = self._make_vector(first) if training and render is None else None
        return own or GymEnv(self.config, training=training, render=render, first=first, beat=beat)

    def trials(self) -> Iterator[Env]:
        one = GymEnv(replace(self.config, num_envs=1), training=True)
        self.spec = self._spec_of(one.envs[0])
        generators = self._generator_finder(one)
        finder = self._finder(one)
        yield one
        if generators is not None and generators.found:
            self.config = replace(self.config, own_generators=True)
            self.spec = replace(self.spec, own_generators=True)
        if finder is not None and finder.found:
            self.config = replace(self.config, action_mask=True)
            one = GymEnv(replace(self.config, num_envs=1), training=True)
            self.spec = self._spec_of(one.envs[0])
            yield one
        own = self._make_vector(first=0)
        if own is not None:
            yield own

    def _generator_finder(self, one: GymEnv) -> GeneratorFinder | None:
        """Looks for draws from the global generators; None where the settings say."""
        if self.config.own_generators is not None:
            return None
        from border_cli.env.own_generators import GeneratorFinder

        finder = one.envs[0] = GeneratorFinder(one.envs[0], str(self.config.id))
        return finder

    def _finder(self, one: GymEnv) -> MaskFinder | None:
        """Looks for action masks as the environment is played; None where it is known."""
        known = self.config.action_mask is not None or has_masks(self.spec.observation)
        if known or isinstance(one.envs[0].action_space, gym.spaces.Box):
            return None
        finder = one.envs[0] = MaskFinder(one.envs[0])
        return finder

    def _make_vector(self, first: int) -> Env | None:
        """The environment's own vector implementation; None where it is not to be used."""
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
        """Goal rewards of one more environment, which is never stepped."""
        from border_cli.env.goals import GymGoalRewards, refuse_no_goals

        refuse_no_goals(self.spec)
        return GymGoalRewards(construct(self.config), str(self.config.id))

    def _spec_of(self, env: gym.Env[Any, Any]) -> EnvSpec:
        env_id = str(self.config.id)
        raw = raw_spaces(env.observation_space, env.action_space, env_id)
        return EnvSpec(
            env_id,
            *raw.ours,
            time_limit(self.config, env),
            stacked=stacks_images(env),
            info_metrics=self.config.recorded_info,
            human_scores=self.config.human_scores,
            own_generators=self.config.own_generators is True,
            raw=raw,
        )
