"""Trains for a few iterations: STEPS [NAME=VALUE …], settings of `AlgorithmConfig.training`."""

import ast
import sys
from pathlib import Path

from settings_of import dqn

steps, *arguments = sys.argv[1:]
pairs = [argument.split("=") for argument in arguments]
algo = dqn(**{name: ast.literal_eval(value) for name, value in pairs}).build_algo()
sampled = 0
while sampled < int(steps):
    result = algo.train()["env_runners"]
    sampled = result["num_env_steps_sampled_lifetime"]
    print("steps", int(sampled), "return", round(result["episode_return_mean"], 1), flush=True)
    algo.save_to_path(str(Path("checkpoint").resolve()))
algo.stop()
