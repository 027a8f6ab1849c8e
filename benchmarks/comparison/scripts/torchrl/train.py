"""Trains as `config.yaml` and the arguments say; `resume=CHECKPOINT` continues."""

import hashlib
from pathlib import Path

import hydra
from torchrl.trainers.algorithms.configs import *  # noqa: F403


@hydra.main(config_path=".", config_name="config", version_base="1.3")
def main(cfg):
    trainer = hydra.utils.instantiate(cfg.trainer)
    if cfg.resume:
        trainer.load_from_file(cfg.resume)
        report(trainer)
    trainer.train()
    print("frames", trainer.collected_frames, "updates", trainer._optim_count)
    write(trainer, Path(cfg.name))


def report(trainer):
    """Prints what the resumed trainer has."""
    frames, updates = trainer.collected_frames, trainer._optim_count
    adam = trainer.optimizer.state_dict()["state"][0]["step"]
    print(f"fact optimiser: Adam step {adam:.0f} of {updates}")
    print(f"fact schedule: epsilon {trainer.greedy_module.eps.item():.2f} after loading")
    print(f"fact counters: step {frames}")


def write(trainer, folder):
    """Writes the hash of the weights, and the returns of all episodes in the replay buffer."""
    folder.mkdir(exist_ok=True)
    weights = b"".join(p.detach().numpy().tobytes() for p in trainer.loss_module.parameters())
    (folder / "weights.txt").write_text(hashlib.sha256(weights).hexdigest())
    rows = trainer.replay_buffer[:]
    (folder / "rows.txt").write_text(str(len(rows)))
    unstored = trainer.collected_frames - len(rows)  # of the random actions at the beginning
    returns = rows["next", "reward_sum"].flatten().tolist()
    with (folder / "episodes.csv").open("w") as file:
        for step in rows["next", "done"].flatten().nonzero().flatten().tolist():
            print(unstored + step, returns[step], sep=",", file=file)


if __name__ == "__main__":
    main()
