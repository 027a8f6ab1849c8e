"""Times Stable-Baselines3 as installed: matched DQN, SAC and PPO, a first update, CartPole solved.

Needs `pip install "border-cli[bench]"`. One torch thread unless stated otherwise; denormals are not
flushed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.bare import (
    BATCH_SIZE,
    CAPACITY,
    GAMMA,
    LEARNING_RATE,
    TARGET_INTERVAL,
    now,
    speed_between,
)
from benchmarks.playing import EPSILON_FINAL, EPSILON_STEPS
from benchmarks.table import Reading, learning
from benchmarks.zoo_settings import DQN_CARTPOLE

ENV_ID = "CartPole-v1"
MAX_STEPS = 500
LOCKSTEP_WARM_UP = 100  # env steps


class Rounds(BaseCallback):
    """A callback that calls `on_round` before every rollout, after the previous updates."""

    def __init__(self, on_round: Callable[[BaseAlgorithm], bool]) -> None:
        super().__init__()
        self._on_round = on_round
        self._wanted = True

    def _on_rollout_start(self) -> None:
        self._wanted = self._wanted and self._on_round(self.model)

    def _on_step(self) -> bool:
        return self._wanted


def _matched_dqn(seed: int, warm_up: int, env_steps: int) -> DQN:
    """Builds DQN with the settings of `playing.PlayingLoop`, and with gradient clipping at 10."""
    return DQN(
        "MlpPolicy",
        ENV_ID,
        learning_rate=LEARNING_RATE,
        buffer_size=CAPACITY,
        learning_starts=warm_up,
        batch_size=BATCH_SIZE,
        gamma=GAMMA,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=TARGET_INTERVAL,
        exploration_fraction=EPSILON_STEPS / env_steps,
        exploration_final_eps=EPSILON_FINAL,
        max_grad_norm=10.0,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )


def matched(seed: int, warm_up: int, settled: int, updates: int) -> Reading:
    """Makes one update per env step after a random warm-up; timed after `settled` updates."""
    torch.set_num_threads(1)
    began_s = time.perf_counter()
    env_steps = warm_up + settled + updates
    model = _matched_dqn(seed, warm_up, env_steps)
    began: list[tuple[float, float]] = []

    def note(model: BaseAlgorithm) -> bool:
        if model._n_updates >= settled and not began:
            began.append(now())
        return True

    model.learn(env_steps, callback=Rounds(note))
    speed = speed_between(began[0], now(), updates)
    wall_s = time.perf_counter() - began_s
    counts = {"updates": model._n_updates, "samples": model.num_timesteps}
    return {**speed._asdict(), "wall_s": wall_s, **counts}


def matched_sac(seed: int, warm_up: int, settled: int, updates: int, threads: int) -> Reading:
    """Does the same as `matched`, with SAC on Pendulum-v1."""
    torch.set_num_threads(threads)
    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_starts=warm_up,
        buffer_size=CAPACITY,
        policy_kwargs={"net_arch": [256, 256]},
        seed=seed,
        device="cpu",
    )  # the defaults match all other settings
    began: list[tuple[float, float]] = []

    def note(model: BaseAlgorithm) -> bool:
        if model._n_updates >= settled and not began:
            began.append(now())
        return True

    model.learn(warm_up + settled + updates, callback=Rounds(note))
    speed = speed_between(began[0], now(), updates)
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    return {**speed._asdict(), **learning(episodes)}


def matched_ppo(seed: int, env_steps: int, shape: dict[str, int]) -> Reading:
    """Times PPO on CartPole with a rollout of this shape, from env step 2,048."""
    torch.set_num_threads(1)
    model, began = _zoo_ppo(seed, **shape), list[tuple[int, float]]()

    def note(model: BaseAlgorithm) -> bool:
        if model.num_timesteps >= 2_048 and not began:
            began.append((model.num_timesteps, time.perf_counter()))
        return True

    model.learn(env_steps, callback=Rounds(note))
    ((first, began_s),) = began
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    speed = (model.num_timesteps - first) / (time.perf_counter() - began_s)
    return {"env_steps_per_s": speed, **learning(episodes)}


def lockstep(seed: int, algorithm: str, envs: int, step_s: float, seconds: float) -> Reading:
    """Times environments that sleep, each in a process, with the settings of `lockstep.py`."""
    torch.set_num_threads(1)
    vector = make_vec_env(
        "benchmarks.sleeping_env:Sleeping-v0",
        n_envs=envs,
        seed=seed,
        env_kwargs={"step_s": step_s},
        vec_env_cls=SubprocVecEnv,
    )
    common = {"seed": seed, "device": "cpu", "policy_kwargs": {"net_arch": [64, 64]}}
    model: BaseAlgorithm
    if algorithm == "ppo":
        model = PPO("MlpPolicy", vector, n_steps=32, batch_size=32, n_epochs=4, **common)
    else:
        model = DQN(
            "MlpPolicy",
            vector,
            learning_starts=LOCKSTEP_WARM_UP,
            batch_size=BATCH_SIZE,
            train_freq=1,
            gradient_steps=1,
            **common,
        )
    moments: list[tuple[int, float]] = []

    def note(model: BaseAlgorithm) -> bool:
        if model._n_updates:
            moments.append((model.num_timesteps, time.perf_counter()))
        return len(moments) < 2 or moments[-1][1] - moments[0][1] < seconds

    model.learn(10**7, callback=Rounds(note))
    vector.close()
    (first, began_s), *_, (last, ended_s) = moments
    return {"env_steps_per_s": (last - first) / (ended_s - began_s)}


def first_update(seed: int, warm_up: int) -> Reading:
    """Returns the time of the first update, from `time.time`."""
    torch.set_num_threads(1)
    moments: list[float] = []

    def note(model: BaseAlgorithm) -> bool:
        if model._n_updates:
            moments.append(time.time())
        return not moments

    _matched_dqn(seed, warm_up, 10 * EPSILON_STEPS).learn(warm_up + 10, callback=Rounds(note))
    return {"first_update_at_s": moments[0]}


def _zoo_dqn(seed: int) -> BaseAlgorithm:
    return DQN("MlpPolicy", ENV_ID, seed=seed, device="cpu", **DQN_CARTPOLE)


def _zoo_ppo(
    seed: int, num_envs: int = 8, n_steps: int = 32, batch_size: int = 256, n_epochs: int = 20
) -> BaseAlgorithm:
    return PPO(
        "MlpPolicy",
        make_vec_env(ENV_ID, n_envs=num_envs, seed=seed),
        n_steps=n_steps,
        batch_size=batch_size,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=n_epochs,
        ent_coef=0.0,
        learning_rate=LinearSchedule(0.001, 0.0, 1.0),
        clip_range=LinearSchedule(0.2, 0.0, 1.0),
        seed=seed,
        device="cpu",
    )


ZOO = {
    "dqn": (_zoo_dqn, 50_000),
    "ppo": (_zoo_ppo, 100_000),
}  # with the RL Zoo's budgets in env steps


@dataclass(slots=True)
class Judge:
    """A callback that evaluates greedy episodes every round, and stops at the threshold."""

    threshold: float
    episodes: int
    seed: int
    score: float = -np.inf
    judging_s: float = 0.0
    at_s: float = field(default_factory=time.time)  # time of the last evaluation

    def __call__(self, model: BaseAlgorithm) -> bool:
        if model.num_timesteps == 0:
            return True
        began_s = time.perf_counter()
        self.score = self._mean_return(model)
        self.judging_s += time.perf_counter() - began_s
        self.at_s = time.time()
        return self.score < self.threshold

    def _mean_return(self, model: BaseAlgorithm) -> float:
        envs = gymnasium.make_vec(ENV_ID, self.episodes, vectorization_mode="vector_entry_point")
        obs, _ = envs.reset(seed=self.seed)
        alive = np.ones(self.episodes, bool)
        returns = np.zeros(self.episodes)
        for _ in range(MAX_STEPS):
            action: Any = model.predict(obs, deterministic=True)[0]
            obs, reward, terminated, truncated, _ = envs.step(action)
            returns += reward * alive
            alive &= ~(terminated | truncated)
            if not alive.any():
                break
        envs.close()
        return float(returns.mean())


def solve(algorithm: str, seed: int, threshold: float, episodes: int) -> Reading:
    """Trains until the mean return of `episodes` greedy episodes reaches the threshold."""
    torch.set_num_threads(1)
    make, env_steps = ZOO[algorithm]
    judge = Judge(threshold, episodes, seed=1_000_000 + seed)
    model = make(seed)
    model.learn(env_steps, callback=Rounds(judge))
    return {
        "seen_at_s": judge.at_s,
        "judging_s": judge.judging_s,
        "score": judge.score,
        "samples": model.num_timesteps,
    }
