"""Plays episodes with a saved policy in a loop of plain Gymnasium. Runs in the virtual environment
of a package.

    python -m benchmarks.third_party.plain_loop RUN_DIR '{"id": …, "kind": …}' OUT.json

`kind`: `reused` resets one environment for each episode, `fresh` constructs one for each, `beside`
constructs all at once and steps them in turn with actions of one batch, as border-eval does.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.third_party.try_env import make
from border_cli import load_policy
from border_cli.core.seeding import Branch, derived_seed
from border_cli.core.spaces import ACTION_MASK


def main() -> None:
    run_dir, recipe, out = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    policy = load_policy(run_dir, trust=True)
    masked = json.loads((run_dir / "env.json").read_text(encoding="utf-8"))["masked"]
    first = derived_seed(recipe["seed"], Branch.EVALUATION)
    seeds = [derived_seed(first, i, 0) for i in range(recipe["episodes"])]
    if recipe["kind"] == "beside":
        scores = beside(recipe, policy, seeds)
    else:
        scores = in_turn(recipe, policy, seeds, masked)
    out.write_text(json.dumps(scores))


def construct(recipe: Any) -> gym.Env[Any, Any]:
    env = make(recipe, max_episode_steps=recipe["steps"])
    for layer in recipe["wrappers"]:
        env = getattr(gym.wrappers, layer)(env)
    return env


def in_turn(recipe: Any, policy: Any, seeds: list[int], masked: bool) -> list[Any]:
    """Returns return and length of one episode after another."""
    env, scores = construct(recipe), []
    for seed in seeds:
        if recipe["kind"] == "fresh":
            env = construct(recipe)
        obs, info = reset(env, seed)
        total, steps, ended = 0.0, 0, False
        while not ended and steps < recipe["steps"]:
            mask = (info[ACTION_MASK],) if masked and ACTION_MASK in info else ()
            obs, reward, terminated, truncated, info = env.step(policy.act(obs, *mask))
            total += weigh(reward, recipe["weights"])
            steps += 1
            ended = bool(terminated or truncated)
        scores.append([total, steps])
    return scores


def beside(recipe: Any, policy: Any, seeds: list[int]) -> list[Any]:
    """Returns return and length of episodes that run at the same time, without action masks."""
    envs = [construct(recipe) for _ in seeds]
    observations = [reset(env, seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    scores: list[list[float]] = [[0.0, 0] for _ in envs]
    running = [True] * len(envs)
    for _ in range(recipe["steps"]):
        actions = policy.act(batch(observations))
        for i in [i for i, runs in enumerate(running) if runs]:
            observations[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            scores[i][0] += weigh(reward, recipe["weights"])
            scores[i][1] += 1
            running[i] = not (terminated or truncated)
    return scores


def reset(env: gym.Env[Any, Any], seed: int) -> tuple[Any, Any]:
    """Resets with a seed, also the global generators, from which some environments draw."""
    random.seed(seed)
    np.random.seed(seed)
    return env.reset(seed=seed)


def batch(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([part[key] for part in observations]) for key in observations[0]}
    return np.stack(observations)


def weigh(reward: Any, weights: list[float]) -> float:
    """Returns the reward as border_cli adds it up."""
    values = np.asarray(reward, np.float64)
    return float(values @ np.array(weights)) if weights else values.item()


if __name__ == "__main__":
    main()
