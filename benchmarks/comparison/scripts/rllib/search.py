"""A random search by Ray Tune of three trials; `restore` continues a search that was killed."""

import sys
from pathlib import Path

from ray import tune
from ray.tune import CheckpointConfig, RunConfig
from settings_of import dqn

folder = Path("search").resolve()
config = dqn().training(lr=tune.loguniform(1e-4, 1e-2))
if "restore" in sys.argv:
    tuner = tune.Tuner.restore(str(folder / "lr"), "DQN", param_space=config)
else:
    stop, saving = {"training_iteration": 3}, CheckpointConfig(checkpoint_frequency=1)
    run = RunConfig("lr", str(folder), stop=stop, checkpoint_config=saving, verbose=0)
    settings = tune.TuneConfig(num_samples=3, max_concurrent_trials=1)
    tuner = tune.Tuner("DQN", param_space=config, run_config=run, tune_config=settings)
for number, result in enumerate(tuner.fit()):
    print("trial", number, "iterations", result.metrics["training_iteration"])
