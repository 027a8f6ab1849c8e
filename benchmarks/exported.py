"""Speed of acting and of starting up with an exported policy: numpy, ONNX and torch.

    python -m benchmarks.exported [--repetitions 3]

Rows: DQN on CartPole at [120, 84]; SAC with observations of size 11 and actions of size 3 at
[256, 256]; DQN with the Nature network on four frames of 84 x 84. All use one thread. `acts_per_s`
counts observations at batch sizes 1 and 64: numpy calls `load_policy(…).act` with its checks, ONNX
`session.run`, and torch the policy's own modules in inference mode, from raw observation to raw
action. `start` measures a process that loads the policy and acts once (torch: only imports torch),
and its peak memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks.table import Reading, emit, make_parser, summary, take_turns
from border_cli import load_policy
from border_cli.agent.learning_agent import LearningAgent
from border_cli.core.spaces import EnvSpec, RawSpace, RawSpaces, convert_space
from border_cli.export.onnx import RawPolicy
from border_cli.export.write import form_of, seal, write_formats
from border_cli.registry import AGENTS, register_builtin

SECONDS = 1.0
BATCHES = (1, 64)
DISCRETE = RawSpace("Discrete", (), "int64", np.asarray(0), np.asarray(5), "Discrete(6)")
STARTS = {
    "numpy": "from border_cli import load_policy; print(load_policy('.').act(obs))",
    "onnx": "import onnxruntime; session = onnxruntime.InferenceSession('policy.onnx'); "
    "print(session.run(None, {'observation': obs[None]})[0])",
    "torch": "import torch",
}


def box(shape: tuple[int, ...], low: float, high: float, dtype: str) -> RawSpace:
    bounds = (np.full(shape, bound, dtype) for bound in (low, high))
    return RawSpace("Box", shape, dtype, *bounds, f"Box({shape})")


ROWS: dict[str, tuple[str, dict[str, Any], RawSpace, RawSpace]] = {
    "dqn_cartpole": ("dqn", {"hidden": [120, 84]}, box((4,), -5, 5, "float32"), DISCRETE),
    "sac_256": ("sac", {}, box((11,), -5, 5, "float64"), box((3,), -1, 1, "float32")),
    "nature_dqn": ("dqn", {"hidden": [512]}, box((4, 84, 84), 0, 255, "uint8"), DISCRETE),
}


def export_untrained(name: str, folder: Path) -> RawPolicy:
    """Exports an untrained policy of a row to the folder; returns it as torch modules."""
    agent_name, settings, observation, action = ROWS[name]
    raw = RawSpaces(observation, action)
    spec = EnvSpec(name, convert_space(observation), action.leaf, None, raw=raw)
    config = AGENTS.entry(agent_name).config_type(**settings, matmul="mkl")
    agent: LearningAgent = AGENTS.build(config, spec=spec, device="cpu", seed=0)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    form = form_of(agent, policy, agent_name)
    rows: Any = np.zeros((2, *observation.shape), observation.row_dtype)
    write_formats(folder, agent, policy, form, rows, onnx=True)
    seal(folder, agent, form)
    return RawPolicy(agent, form).eval().requires_grad_(False)


def actors(folder: Path, module: RawPolicy) -> dict[str, Callable[[Any], object]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = str(folder / "policy.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def in_torch(obs: Any) -> object:
        with torch.inference_mode():
            return module([torch.from_numpy(obs)])[0].numpy()

    return {
        "numpy": load_policy(folder).act,
        "onnx": lambda obs: session.run(["action"], {"observation": obs}),
        "torch": in_torch,
    }


def rate(act: Callable[[Any], object], obs: Any, seed: int) -> Reading:
    del seed
    act(obs)
    calls, began_s = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - began_s) < SECONDS:
        act(obs)
        calls += 1
    return {"acts_per_s": calls * len(obs) / passed_s}


def start(folder: Path, backend: str, seed: int) -> Reading:
    """Times a whole process and reads its peak memory."""
    del seed
    obs = f"import numpy as np; obs = np.zeros({ROWS[folder.name][2].shape}, '{_dtype(folder)}'); "
    script = obs + STARTS[backend] + "; print(open('/proc/self/status').read())"
    began_s = time.perf_counter()
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    passed_s = time.perf_counter() - began_s
    kilobytes = process.stdout.partition("VmHWM:")[2].split()[0]
    return {"start_s": passed_s, "megabytes": int(kilobytes) / 1024}


def _dtype(folder: Path) -> str:
    return ROWS[folder.name][2].dtype


def main() -> None:
    arguments = make_parser(__doc__, repetitions=3).parse_args()
    torch.set_num_threads(1)
    register_builtin()
    with tempfile.TemporaryDirectory() as root:
        for name, (_, _, observation, _) in ROWS.items():
            folder = Path(root, name)
            folder.mkdir()
            module = export_untrained(name, folder)
            contenders: dict[str, Callable[[int], Reading]] = {}
            for rows in BATCHES:
                obs = (
                    np.random.default_rng(0)
                    .random((rows, *observation.shape))
                    .astype(observation.dtype)
                )
                for how, act in actors(folder, module).items():
                    contenders[f"{how}_{rows}"] = partial(rate, act, obs)
            contenders |= {f"start_{how}": partial(start, folder, how) for how in STARTS}
            readings = take_turns(contenders, arguments.repetitions)
            emit(
                "exported",
                name,
                {contender: summary(results) for contender, results in readings.items()},
            )


if __name__ == "__main__":
    main()
