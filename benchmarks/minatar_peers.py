"""Stable-Baselines3's DQN on MinAtar, with the network and the number of steps of ours.

    python -m benchmarks.minatar_peers --games breakout freeway --seeds 1 2 [--steps 300000]

Needs the extras `minatar` and `bench`. Network, batch, buffer, warm-up, learning rate, discount,
target interval and epsilon are ours for that game, one update per step; all else is as
Stable-Baselines3 has it. One JSON line per game and seed: the mean return of 20 greedy episodes
every 25,000 steps, in the environments that ours are evaluated in. To compare:
`border-train env=minatar_breakout seed=1`.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from benchmarks.table import emit, parser
from border_cli import compose
from border_cli.agent.config import DqnConfig
from border_cli.env.config import GymConfig
from border_cli.env.construct import construct

EPISODES = 20
EVALUATION_STEPS = 25_000
LONGEST = 10_000  # steps of an evaluation episode
TRAINED, JUDGED = 0, 1_000_000  # where the seeds of their environments begin


class Planes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Planes first and as numbers, as Stable-Baselines3 takes images that are not bytes."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        height, width, planes = env.observation_space.shape or ()
        self.observation_space = gymnasium.spaces.Box(0, 1, (planes, height, width), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation.transpose(2, 0, 1).astype(np.float32)


class Convolution(BaseFeaturesExtractor):
    """The network of Young and Tian 2019, up to its output."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, 128)
        self.layers = nn.Sequential(
            *(nn.Conv2d(space.shape[0], 16, 3), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(16 * 8 * 8, 128), nn.ReLU()),
        )

    def forward(self, observations: Tensor) -> Tensor:
        found: Tensor = self.layers(observations)
        return found


def make(game: str) -> Planes:
    return Planes(construct(GymConfig(id=f"MinAtar/{game.title().replace('_', '')}-v1")))


def score(model: DQN, env: Planes, seed: int) -> float:
    """Mean return of greedy episodes."""
    total = 0.0
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=JUDGED + 1_000 * seed + episode)
        for _ in range(LONGEST):
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
    return total / EPISODES


class Judging(BaseCallback):
    """Evaluates every so many steps."""

    def __init__(self, env: Planes, seed: int) -> None:
        super().__init__()
        self._env, self._seed = env, seed
        self.curve: dict[int, float] = {}

    def _on_step(self) -> bool:
        if self.num_timesteps % EVALUATION_STEPS == 0:
            assert isinstance(self.model, DQN)
            self.curve[self.num_timesteps] = score(self.model, self._env, self._seed)
        return True


def train(game: str, seed: int, steps: int) -> dict[str, Any]:
    """The curve of one run."""
    torch.set_num_threads(1)
    ours = compose("agent=dqn", f"env=minatar_{game}", f"trainer.max_env_steps={steps}")
    agent = ours.agent
    assert isinstance(agent, DqnConfig)
    env, judge = make(game), make(game)
    env.reset(seed=TRAINED + seed)
    model = DQN(
        "CnnPolicy",
        env,
        learning_rate=agent.learning_rate,
        buffer_size=ours.replay_buffer.capacity,
        learning_starts=ours.trainer.warmup_period,
        batch_size=agent.batch_size,
        gamma=agent.gamma,
        train_freq=1,
        gradient_steps=1,
        target_update_interval=agent.target_interval,
        exploration_fraction=agent.epsilon_steps / steps,
        exploration_final_eps=agent.epsilon_final,
        policy_kwargs={
            "features_extractor_class": Convolution,
            "net_arch": [],
            "normalize_images": False,
        },
        seed=seed,
        device="cpu",
    )
    began_s, judging = time.perf_counter(), Judging(judge, seed)
    model.learn(steps, callback=judging)
    curve = judging.curve
    return {"returns": curve, "best": max(curve.values()), "s": time.perf_counter() - began_s}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--games", nargs="+", default=["breakout", "freeway"])
    made.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    made.add_argument("--steps", type=int, default=300_000)
    arguments = made.parse_args()
    for game in arguments.games:
        for seed in arguments.seeds:
            emit("minatar_peers", f"{game}, {seed}", train(game, seed, arguments.steps))


if __name__ == "__main__":
    main()
