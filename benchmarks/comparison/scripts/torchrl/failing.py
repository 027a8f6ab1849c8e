"""train.py, which fails in the job with seed 1 while the variable FAILS is 1."""

import os

import hydra
from torchrl.trainers.algorithms.configs import *  # noqa: F403


@hydra.main(config_path=".", config_name="config", version_base="1.3")
def main(cfg):
    if cfg.trainer.seed == 1 and os.environ.get("FAILS") == "1":
        raise RuntimeError("the simulator has no licence")
    trainer = hydra.utils.instantiate(cfg.trainer)
    trainer.train()
    print("done, seed", cfg.trainer.seed)


if __name__ == "__main__":
    main()
