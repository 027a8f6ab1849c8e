"""Evaluates the policy of a checkpoint greedily: CHECKPOINT SEED."""

import sys

import torch
from torchrl.checkpoint import Checkpoint
from torchrl.envs import GymEnv, RewardSum, TransformedEnv
from torchrl.modules import MLP, QValueActor

network = MLP(in_features=4, out_features=2, num_cells=[64, 64])
actor = QValueActor(network, in_keys=["observation"], action_space="one-hot")
Checkpoint(policy=actor).load(sys.argv[1], components={"policy"}, strict="ignore")
env = TransformedEnv(GymEnv("CartPole-v1"), RewardSum())
env.set_seed(int(sys.argv[2]))
with torch.no_grad():
    returns = [env.rollout(500, actor)["next", "episode_reward"][-1].item() for _ in range(5)]
print("returns", returns)
