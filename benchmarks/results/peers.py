"""Stable-Baselines3 on the budget, evaluations and episodes of one of our rows.

Needs `pip install "border-cli[bench]"`. One torch thread.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import Tensor, nn

from benchmarks.stable_baselines import Rounds
from border_cli.core.seeding import derived_seed
from border_cli.env.config import GymConfig
from border_cli.env.construct import MINATAR, construct

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"dqn": DQN, "ppo": PPO, "sac": SAC}
LINEAR = "lin_"  # prefix of a learning rate or clip range that falls to 0, as in the RL Zoo


class Planes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Converts observations to channels-first floats, as Stable-Baselines3 expects them."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        height, width, planes = env.observation_space.shape or ()
        self.observation_space = gymnasium.spaces.Box(0, 1, (planes, height, width), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation.transpose(2, 0, 1).astype(np.float32)


class MinatarCnn(BaseFeaturesExtractor):
    """The network of Young and Tian 2019, without its output layer."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, 128)
        self.layers = nn.Sequential(
            *(nn.Conv2d(space.shape[0], 16, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(16 * 8 * 8, 128), nn.ReLU()),
        )

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.layers(observations)
        return features


def is_minatar(env_id: str) -> bool:
    return env_id.startswith(f"{MINATAR}/")


def make_env(config: GymConfig) -> gymnasium.Env[Any, Any]:
    env = construct(config)
    return Planes(env) if is_minatar(str(config.id)) else env


def make_vector(config: GymConfig, settings: dict[str, Any]) -> VecEnv:
    """Builds the training environments and removes their settings, `n_envs` and `normalize`."""
    make = partial(make_env, config)
    vector: VecEnv = DummyVecEnv([make] * settings.pop("n_envs", 1))
    if settings.pop("normalize", False):
        vector = VecNormalize(vector, gamma=settings.get("gamma", 0.99))
    return vector


def make_model(
    algorithm: str, env_id: str, env: VecEnv, seed: int, settings: dict[str, Any]
) -> BaseAlgorithm:
    policy, network = "MlpPolicy", dict(settings.get("policy_kwargs", {}))
    if "activation_fn" in network:
        network["activation_fn"] = getattr(nn, network["activation_fn"])
    if is_minatar(env_id):
        policy = "CnnPolicy"
        network |= {"features_extractor_class": MinatarCnn, "net_arch": []}
        network |= {"normalize_images": False}
    settings = settings | {"policy_kwargs": network}
    for name, value in settings.items():
        if isinstance(value, str) and value.startswith(LINEAR):
            settings[name] = LinearSchedule(float(value.removeprefix(LINEAR)), 0.0, 1.0)
    return ALGORITHMS[algorithm](policy, env, seed=seed, device="cpu", **settings)


class Episodes:
    """Greedy episodes in parallel, seeded like those of `border-eval`."""

    def __init__(self, config: GymConfig, count: int, seed: int) -> None:
        self._envs = [make_env(config) for _ in range(count)]
        self._seed = seed

    def play(self, model: BaseAlgorithm) -> NDArray[np.float64]:
        """Runs all episodes with a model; returns their total rewards.  [E]"""
        returns = np.zeros(len(self._envs))  # [E]
        seeds = [derived_seed(self._seed, i, 0) for i in range(len(self._envs))]
        first = [env.reset(seed=seed)[0] for env, seed in zip(self._envs, seeds, strict=True)]
        obs = dict(enumerate(first))  # observations of unfinished episodes
        statistics = model.get_vec_normalize_env()
        while obs:
            rows = np.stack(list(obs.values()))
            rows = rows if statistics is None else statistics.normalize_obs(rows)
            actions = model.predict(rows, deterministic=True)[0]
            for i, action in zip(list(obs), actions, strict=True):
                obs[i], reward, terminated, truncated, _ = self._envs[i].step(action)
                returns[i] += float(reward)
                if terminated or truncated:
                    del obs[i]
        return returns

    def close(self) -> None:
        for env in self._envs:
            env.close()


@dataclass(slots=True)
class Judge:
    """A callback that evaluates every `every` env steps and stores the best weights."""

    episodes: Episodes
    every: int
    env_steps: list[int] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    best_statistics: Any = None  # of the observations, if they are normalized

    def __call__(self, model: BaseAlgorithm) -> bool:
        if model.num_timesteps >= self.every * (len(self.env_steps) + 1):
            self.evaluate(model)
        return True

    def evaluate(self, model: BaseAlgorithm) -> None:
        mean = float(self.episodes.play(model).mean())
        if not self.returns or mean > max(self.returns):
            self.best = copy.deepcopy(model.policy.state_dict())
            statistics = model.get_vec_normalize_env()
            self.best_statistics = copy.deepcopy(statistics and statistics.obs_rms)
        self.env_steps.append(model.num_timesteps)
        self.returns.append(mean)


def train(
    algorithm: str,
    settings: dict[str, Any],
    *,
    env_id: str,
    env_kwargs: dict[str, Any],
    env_wrappers: Sequence[Any] = (),
    env_steps: int,
    eval_every: int,
    eval_episodes: int,
    seed: int,
    evaluation_seed: int,
    judging_seed: int,
    judging_episodes: int,
    began_at_s: float,
) -> dict[str, Any]:
    """Trains one seed and returns its cell. `began_at_s` is the start time of the process."""
    torch.set_num_threads(1)
    config = GymConfig(id=env_id, kwargs=env_kwargs, wrappers=[*env_wrappers])
    vector = make_vector(config, settings)
    model = make_model(algorithm, env_id, vector, seed, settings)
    episodes = Episodes(config, eval_episodes, evaluation_seed)
    judge = Judge(episodes, eval_every)
    model.learn(env_steps, callback=Rounds(judge))
    judge.evaluate(model)
    wall_s, cpu_s = time.time() - began_at_s, time.process_time()
    fresh = Episodes(config, judging_episodes, judging_seed)
    last = fresh.play(model).tolist()
    model.policy.load_state_dict(judge.best)
    if isinstance(vector, VecNormalize):
        vector.obs_rms = judge.best_statistics
    return {
        "best": fresh.play(model).tolist(),
        "last": last,
        "env_steps": model.num_timesteps,
        "opt_steps": getattr(model, "_n_updates", 0),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "curve": {"env_steps": judge.env_steps, "returns": judge.returns},
    }
