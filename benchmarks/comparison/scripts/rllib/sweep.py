"""Three seeds by Ray Tune; the second fails while FAILS is 1. `restore` runs only that one."""

import os
import sys
from pathlib import Path

from ray import tune
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune import RunConfig
from settings_of import dqn


class Fails(RLlibCallback):
    def on_train_result(self, *, algorithm, **_):
        if algorithm.config.seed == 1 and os.environ.get("FAILS") == "1":
            raise RuntimeError("the simulator has no licence")


folder = Path("sweep").resolve()
config = dqn(seed=tune.grid_search([0, 1, 2])).callbacks(Fails)
if "restore" in sys.argv:
    tuner = tune.Tuner.restore(
        str(folder / "seeds"), "DQN", param_space=config, resume_errored=True
    )
else:
    run = RunConfig("seeds", str(folder), stop={"training_iteration": 2}, verbose=0)
    tuner = tune.Tuner("DQN", param_space=config, run_config=run)
for result in tuner.fit():
    outcome = str(result.error).splitlines()[-1] if result.error else "done"
    print("seed", result.config["seed"], outcome)
