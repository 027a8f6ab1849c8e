"""How fast an exported policy acts and starts: numpy, ONNX and torch.

    python -m benchmarks.exported [--repetitions 3]

Rows: DQN on CartPole at [120, 84], SAC on 11 numbers and 3 actions at [256, 256], DQN with the
Nature network on four frames of 84 x 84. Each has one thread. `acts_per_s` at batch 1 and 64 are
calls times rows: numpy's is `load_policy(…).act`, with its checks; ONNX's is `session.run`; torch's
the policy's own modules in inference mode, from raw observation to raw action. `start`: a process
that loads the policy and acts once, and its largest memory.
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

from benchmarks.table import Reading, emit, parser, summary, take_turns
from border_cli import load_policy
from border_cli.agent.torch_agent import TorchAgent
from border_cli.core.spaces import EnvSpec, RawSpace, RawSpaces, space_of
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
    bounds = (np.full(shape, each, dtype) for each in (low, high))
    return RawSpace("Box", shape, dtype, *bounds, f"Box({shape})")


ROWS: dict[str, tuple[str, dict[str, Any], RawSpace, RawSpace]] = {
    "dqn_cartpole": ("dqn", {"hidden": [120, 84]}, box((4,), -5, 5, "float32"), DISCRETE),
    "sac_256": ("sac", {}, box((11,), -5, 5, "float64"), box((3,), -1, 1, "float32")),
    "nature_dqn": ("dqn", {"hidden": [512]}, box((4, 84, 84), 0, 255, "uint8"), DISCRETE),
}


def exported(name: str, folder: Path) -> RawPolicy:
    """An untrained policy of this row in the folder, and as torch's modules."""
    agent_name, settings, seen, action = ROWS[name]
    raw = RawSpaces(seen, action)
    spec = EnvSpec(name, space_of(seen), action.leaf, None, raw=raw)
    config = AGENTS.entry(agent_name).config_type(**settings, matmul="mkl")
    agent: TorchAgent = AGENTS.build(config, spec=spec, device="cpu", seed=0)
    policy: Any = agent.policy_factory(np.random.default_rng(0))
    policy.load_snapshot(agent.snapshot())
    form = form_of(agent, policy, agent_name)
    rows: Any = np.zeros((2, *seen.shape), seen.carried)
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


def start(folder: Path, how: str, seed: int) -> Reading:
    """A process from its beginning to its end."""
    del seed
    obs = f"import numpy as np; obs = np.zeros({ROWS[folder.name][2].shape}, '{_dtype(folder)}'); "
    script = obs + STARTS[how] + "; print(open('/proc/self/status').read())"
    began_s = time.perf_counter()
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    passed_s = time.perf_counter() - began_s
    kilobytes = done.stdout.partition("VmHWM:")[2].split()[0]
    return {"start_s": passed_s, "megabytes": int(kilobytes) / 1024}


def _dtype(folder: Path) -> str:
    return ROWS[folder.name][2].dtype


def main() -> None:
    arguments = parser(__doc__, repetitions=3).parse_args()
    torch.set_num_threads(1)
    register_builtin()
    with tempfile.TemporaryDirectory() as place:
        for name, (_, _, seen, _) in ROWS.items():
            folder = Path(place, name)
            folder.mkdir()
            module = exported(name, folder)
            contenders: dict[str, Callable[[int], Reading]] = {}
            for rows in BATCHES:
                obs = np.random.default_rng(0).random((rows, *seen.shape)).astype(seen.dtype)
                for how, act in actors(folder, module).items():
                    contenders[f"{how}_{rows}"] = partial(rate, act, obs)
            contenders |= {f"start_{how}": partial(start, folder, how) for how in STARTS}
            readings = take_turns(contenders, arguments.repetitions)
            emit("exported", name, {each: summary(found) for each, found in readings.items()})


if __name__ == "__main__":
    main()
