"""Exports the policy to ONNX with a wrapper, as in the guide of Stable-Baselines3."""

import torch
from stable_baselines3 import PPO


class OnnxablePolicy(torch.nn.Module):
    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, observation):
        return self.policy(observation, deterministic=True)


model = PPO.load("logs/ppo/CartPole-v1_1/CartPole-v1.zip", device="cpu")
torch.onnx.export(
    *(OnnxablePolicy(model.policy), (torch.zeros(1, 4),), "policy.onnx"),
    **{"opset_version": 17, "input_names": ["observation"], "dynamo": False},
)
