"""Exports the policy of a checkpoint to ONNX, as in the tutorial of TorchRL."""

import torch
from torchrl.checkpoint import Checkpoint
from torchrl.modules import MLP, QValueActor

network = MLP(in_features=4, out_features=2, num_cells=[64, 64])
actor = QValueActor(network, in_keys=["observation"], action_space="one-hot")
Checkpoint(policy=actor).load("checkpoint", components={"policy"}, strict="ignore")
program = torch.onnx.export(
    actor.eval(), (), kwargs={"observation": torch.zeros(1, 4)}, dynamo=True
)
program.save("policy.onnx")
