"""Prints settings of a checkpoint, and builds an algorithm from them again."""

from pathlib import Path

from ray.rllib.algorithms.algorithm import Algorithm

config = Algorithm.from_checkpoint(str(Path("checkpoint").resolve())).config
settings = config.to_dict()
print("settings", len(settings), "gamma", settings["gamma"], "lr", settings["lr"])
again = config.copy(copy_frozen=False).debugging(seed=1).build_algo()
print("iteration", again.train()["training_iteration"])
