"""PPO in one file in CleanRL's manner, as a baseline of `benchmarks.matched_ppo`.

Plain modules, autograd, torch.optim.Adam, Gymnasium's synchronous vector of environments, acting in
torch. No evaluations, checkpoints or metrics.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.table import Reading, learning
from border_cli.nn.device import learner_thread

GAMMA, GAE_LAMBDA = 0.98, 0.8
LEARNING_RATE, CLIP_RANGE, VALUE_COEF, MAX_GRAD_NORM = 1e-3, 0.2, 0.5, 0.5
SIZE = 64


def _layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _mlp(outputs: int, gain: float) -> nn.Sequential:
    hidden = _layer(4, SIZE), nn.Tanh(), _layer(SIZE, SIZE), nn.Tanh()
    return nn.Sequential(*hidden, _layer(SIZE, outputs, gain))


class Loop:
    """One training run."""

    def __init__(self, shape: Mapping[str, int], env_steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._shape, self._env_steps = shape, env_steps
        makers = [lambda: gym.make("CartPole-v1")] * shape["num_envs"]
        mode = gym.vector.AutoresetMode.SAME_STEP
        self._envs = gym.vector.SyncVectorEnv(makers, autoreset_mode=mode)
        self._obs: Any = self._envs.reset(seed=seed)[0]
        self._policy, self._value = _mlp(2, 0.01), _mlp(1, 1.0)
        self._parameters = [*self._policy.parameters(), *self._value.parameters()]
        self._adam = torch.optim.Adam(self._parameters, lr=LEARNING_RATE, eps=1e-5)
        self._scores = np.zeros(shape["num_envs"])
        self.returns: list[float] = []

    def run(self, settled: int) -> float:
        """Trains and returns env steps/s from `settled` steps to the end."""
        rollout = self._shape["num_envs"] * self._shape["n_steps"]
        began = None
        for step in range(0, self._env_steps, rollout):
            if step >= settled and began is None:
                began = step, time.perf_counter()
            columns = self._collect()
            for _ in range(self._shape["n_epochs"]):
                for rows in torch.randperm(rollout).split(self._shape["batch_size"]):
                    self._update(*(column[rows] for column in columns))
        assert began is not None
        return (self._env_steps - began[0]) / (time.perf_counter() - began[1])

    @torch.no_grad()
    def _collect(self) -> list[Tensor]:
        """Returns observations, actions, log-probabilities, advantages and returns of a rollout."""
        steps: list[tuple[Tensor, ...]] = []
        for _ in range(self._shape["n_steps"]):
            obs = torch.from_numpy(self._obs)
            choice = Categorical(logits=self._policy(obs))
            action = choice.sample()
            value = self._value(obs).flatten()
            self._obs, reward, terminated, truncated, _ = self._envs.step(action.numpy())
            ended = terminated | truncated
            self._scores += reward
            self.returns += self._scores[ended].tolist()
            self._scores[ended] = 0
            numbers = torch.from_numpy(reward).float(), torch.from_numpy(~ended).float()
            steps.append((obs, action, choice.log_prob(action), value, *numbers))
        columns = [torch.stack(parts) for parts in zip(*steps, strict=True)]
        obs, action, log_prob, values, rewards, goes_on = columns
        advantage = torch.zeros_like(rewards)
        last, next_value = (
            torch.zeros(len(self._scores)),
            self._value(torch.from_numpy(self._obs)).flatten(),
        )
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + GAMMA * goes_on[t] * next_value - values[t]
            last = delta + GAMMA * GAE_LAMBDA * goes_on[t] * last
            advantage[t], next_value = last, values[t]
        flat = obs, action, log_prob, advantage, advantage + values
        return [column.flatten(0, 1) for column in flat]

    def _update(
        self, obs: Tensor, action: Tensor, old_log_prob: Tensor, advantage: Tensor, target: Tensor
    ) -> None:
        choice = Categorical(logits=self._policy(obs))
        ratio = (choice.log_prob(action) - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        value_loss = (self._value(obs).flatten() - target).square().mean()
        self._adam.zero_grad()
        (policy_loss + VALUE_COEF * value_loss).backward()
        nn.utils.clip_grad_norm_(self._parameters, MAX_GRAD_NORM)
        self._adam.step()


def measure(seed: int, env_steps: int, settled: int, shape: dict[str, int]) -> Reading:
    """Measures one run."""
    with learner_thread(num_threads=1):
        loop = Loop(shape, env_steps, seed)
        speed = loop.run(settled)
    return {"env_steps_per_s": speed, **learning(loop.returns)}
