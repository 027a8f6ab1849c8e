"""Evaluates a checkpoint with another seed: CHECKPOINT SEED."""

import sys
from pathlib import Path

from ray.rllib.algorithms.algorithm import Algorithm

algo = Algorithm.from_checkpoint(str(Path(sys.argv[1]).resolve()))
config = algo.config.copy(copy_frozen=False).debugging(seed=int(sys.argv[2]))
config.evaluation(evaluation_interval=1, evaluation_duration=5, evaluation_num_env_runners=0)
again = config.build_algo()
again.restore_from_path(str(Path(sys.argv[1]).resolve()))
result = again.evaluate()["env_runners"]
print("episodes", result["num_episodes"], "return", round(result["episode_return_mean"], 1))
