"""Trains in an environment of the user's own."""

from my_envs import Corridor
from ray.tune.registry import register_env
from settings_of import dqn

register_env("corridor", lambda config: Corridor(**config))
algo = dqn("corridor").environment(env_config={"length": 5}).build_algo()
for _ in range(4):
    print("return", algo.train()["env_runners"]["episode_return_mean"])
algo.stop()
