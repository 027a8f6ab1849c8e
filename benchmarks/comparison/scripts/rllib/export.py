"""Exports the network of a checkpoint to ONNX, as in an example of RLlib."""

from pathlib import Path

import torch
from ray.rllib.core.rl_module.rl_module import RLModule

folder = Path("checkpoint/learner_group/learner/rl_module/default_policy").resolve()
module = RLModule.from_checkpoint(str(folder))


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = module

    def forward(self, observation):
        return self.module.forward_inference({"obs": observation})["actions"]


torch.onnx.export(Policy(), (torch.zeros(1, 4),), "policy.onnx", dynamo=True)
