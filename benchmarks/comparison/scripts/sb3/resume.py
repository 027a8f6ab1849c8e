"""DQN with checkpoints, as in the guide of Stable-Baselines3; `resume` continues from the last."""

import hashlib
import sys
from pathlib import Path

import gymnasium as gym
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.monitor import Monitor

STEPS = 8_000
folder, resumed = Path(sys.argv[1]), "resume" in sys.argv
env = Monitor(gym.make("CartPole-v1"), str(folder / ("second" if resumed else "first")))
save = CheckpointCallback(1_000, str(folder), name_prefix="dqn", save_replay_buffer=True)
if resumed:
    newest = max(folder.glob("dqn_*_steps.zip"), key=lambda path: int(path.stem.split("_")[1]))
    steps = int(newest.stem.split("_")[1])
    model = DQN.load(newest, env=env)
    model.load_replay_buffer(folder / f"dqn_replay_buffer_{steps}_steps.pkl")
    adam = model.policy.optimizer.state_dict()["state"][0]["step"]
    print(f"fact buffer: {model.replay_buffer.size()} of {steps} rows")
    print(f"fact optimiser: Adam step {adam:.0f} of {model._n_updates}")
    print(f"fact counters: step {model.num_timesteps} of {steps}")
else:
    model = DQN(
        *("MlpPolicy", env, 2.3e-3),
        **{"buffer_size": 100_000, "learning_starts": 1_000, "batch_size": 64, "train_freq": 256},
        **{"gradient_steps": 128, "target_update_interval": 10, "exploration_fraction": 0.16},
        **{"exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [64, 64]}, "seed": 0},
    )
model.learn(STEPS - model.num_timesteps, callback=save, reset_num_timesteps=False)
if resumed:
    print(f"fact schedule: epsilon {model.exploration_rate:.2f} to the end")
weights = b"".join(value.numpy().tobytes() for value in model.q_net.state_dict().values())
(folder / "weights.txt").write_text(hashlib.sha256(weights).hexdigest())
