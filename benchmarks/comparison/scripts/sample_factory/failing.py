"""train_gym_env, which fails in the job with seed 1 while the variable FAILS is 1."""

import os
import sys

from sf_examples.train_gym_env import main

if __name__ == "__main__":
    if "--seed=1" in sys.argv and os.environ.get("FAILS") == "1":
        raise RuntimeError("the simulator has no licence")
    sys.exit(main())
