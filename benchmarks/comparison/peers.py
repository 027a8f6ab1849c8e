"""The tools that are compared, and the twelve tasks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
RESULTS = ROOT / "benchmarks" / "results" / "comparison"
TORCH = "torch>=2.6,<2.14"  # constraint of every installation


class Peer(NamedTuple):
    """A tool: the name of its folder of scripts, and what pip installs."""

    name: str
    title: str
    requirements: tuple[str, ...]
    shown: tuple[str, ...]  # distributions whose versions the page shows


class Task(NamedTuple):
    """A task of daily work: the name of its script, and what it asks."""

    name: str
    title: str
    question: str


def _peers(*peers: Peer) -> dict[str, Peer]:
    return {peer.name: peer for peer in peers}


PEERS = _peers(
    Peer("border", "border_cli", (), ("border-cli", "torch", "gymnasium")),
    Peer(
        "sb3",
        "Stable-Baselines3 and RL Zoo",
        (
            *("stable-baselines3[extra]==2.9.2", "rl_zoo3[plots]==2.9.2", "requests"),
            *("onnx", "onnxruntime", "onnxscript"),
        ),
        ("stable-baselines3", "rl-zoo3", "torch", "gymnasium"),
    ),
    # Its newest release. Without a version, pip installs 0.4.8 of 2021 on Python 3.11.
    Peer("cleanrl", "CleanRL", ("cleanrl==1.2.0",), ("cleanrl",)),
    Peer(
        "torchrl",
        "TorchRL",
        ("torchrl==0.14.1", "gymnasium", "hydra-core", "onnx", "onnxruntime", "onnxscript"),
        ("torchrl", "tensordict", "torch", "gymnasium"),
    ),
    Peer(
        "rllib",
        "RLlib",
        ("ray[rllib,tune]==2.60.0", "torch", "pillow", "onnx", "onnxruntime", "onnxscript"),
        ("ray", "torch", "gymnasium"),
    ),
    Peer(
        "sample_factory",
        "Sample Factory",
        ("sample-factory==2.1.1", "onnx", "onnxruntime", "onnxscript"),
        ("sample-factory", "torch", "gymnasium"),
    ),
)
TASKS = (
    Task("resume", "Kill and resume", "`kill -9` in the middle: what is kept?"),
    Task("train", "Train", "An agent on CartPole, from the shell."),
    Task("stop", "Ctrl-C", "What is left, and how does the run go on?"),
    Task("typo", "Misspelt setting", "`gama` instead of `gamma`."),
    Task("wrong_value", "Impossible value", "A discount of 1.5, or text for a number."),
    Task("sweep", "Sweep with a failure", "Three seeds; the second job fails. What of the others?"),
    Task("search", "Search", "Is a killed search for hyperparameters continued?"),
    Task("evaluate", "Evaluate elsewhere", "With another seed, from another directory."),
    Task("export", "Export", "A policy that runs without the library that trained it."),
    Task("own_env", "Own environment", "A module in the user's folder."),
    Task("curves", "Curves over seeds", "With intervals, from the shell."),
    Task("settings", "All settings", "To see them, and to run again with them."),
)
