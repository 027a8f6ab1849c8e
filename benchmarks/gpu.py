"""Runs the tests that need a GPU, then compares updates/s on it with plain PyTorch loops.

    python -m benchmarks.gpu [--repetitions 3] [--rows dqn_256 …] [--seconds 4] [--device cuda:0]

Rows: DQN at [256, 256], and on Atari frames with the Nature network, both with batches of 64; SAC
at [256, 256] and [1024, 1024] with batches of 256. The contenders take turns, each in its own
process: `ours`, `ours_compiled` (`agent.compile=true`: CUDA graphs), `bare` (`bare_updates.py`,
eager: plain modules, autograd and `torch.optim.Adam(fused=True)`) and `bare_compiled`, whose losses
are compiled with `torch.compile(mode="reduce-overhead")`, which turns both passes into CUDA graphs.
Batches are precomputed in host memory; every update copies one to the device.

Without a GPU, nothing is measured; use `--device cpu` to try the command.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks import bare_updates
from benchmarks.isolated import call
from benchmarks.table import Reading, column, emit, make_parser, ratios, say, summary, take_turns
from benchmarks.updates import BATCHES, HARD_TARGET, batches_of, spec_of
from border_cli.core.spaces import BoxSpace, EnvSpec
from border_cli.core.types import Batch
from border_cli.nn.device import learner_thread
from border_cli.registry import AGENTS, register_builtin

SETTLED_S = 1.0  # seconds of warm-up after the first updates, which compile
FRAMES = (4, 84, 84)
COLUMNS = ("obs", "action", "reward", "discount", "next_obs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An agent and its networks."""

    agent: str
    hidden: tuple[int, ...]
    frames: bool = False


ROWS = {
    "dqn_256": Row(agent="dqn", hidden=(256, 256)),
    "nature_dqn": Row(agent="dqn", hidden=(512,), frames=True),
    "sac_256": Row(agent="sac", hidden=(256, 256)),
    "sac_1024": Row(agent="sac", hidden=(1024, 1024)),
}
CONTENDERS = ("bare", "bare_compiled", "ours", "ours_compiled")


def transitions_of(row: Row, seed: int) -> tuple[EnvSpec, list[Batch]]:
    """Returns the spaces of a row's agent, and random batches."""
    spec, batches = spec_of(row.agent), batches_of(row.agent, seed)
    if not row.frames:
        return spec, batches
    black = np.zeros(FRAMES, np.uint8)
    box = BoxSpace(shape=FRAMES, dtype="uint8", low=black, high=black + 255)
    rng, shape = np.random.default_rng(seed), (len(batches[0]), *FRAMES)
    pixels = [rng.integers(256, size=shape, dtype=np.uint8) for _ in batches]
    framed = [replace(batch, obs=p, next_obs=p) for batch, p in zip(batches, pixels, strict=True)]
    return replace(spec, observation=box), framed


def _rate(update: Callable[[int], object], device: torch.device, seconds: float) -> Reading:
    """Measures updates/s; the clock stops once the device has finished all its work."""

    def rate(seconds: float) -> float:
        done, began_s = 0, time.perf_counter()
        while time.perf_counter() < began_s + seconds:
            for i in range(10):
                update(done + i)
            done += 10
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return done / (time.perf_counter() - began_s)

    rate(0.001)
    rate(SETTLED_S)
    return {"updates_per_s": rate(seconds)}


def ours(name: str, device: str, seed: int, seconds: float, *, compiled: bool) -> Reading:
    """Measures updates/s of our agent."""
    register_builtin()
    row, torch_device = ROWS[name], torch.device(device)
    spec, batches = transitions_of(row, seed)
    config = replace(
        AGENTS.entry(row.agent).config_type(),
        **(HARD_TARGET if row.agent == "dqn" else {}),
        **{"hidden": list(row.hidden), "batch_size": len(batches[0]), "max_grad_norm": None},
        compile=compiled,
    )
    agent = AGENTS.build(config, spec=spec, device=device, seed=seed)
    with agent.learner_thread():
        return _rate(lambda i: agent.update(batches[i % BATCHES]), torch_device, seconds)


def bare(name: str, device: str, seed: int, seconds: float, *, compiled: bool) -> Reading:
    """Measures updates/s of a plain loop."""
    torch.manual_seed(seed)
    row, torch_device = ROWS[name], torch.device(device)
    with torch_device:
        loop = _loop(row)
    if compiled:
        mode = "reduce-overhead" if torch_device.type == "cuda" else "default"
        for loss in ("loss", "critic_loss", "actor_loss"):
            if hasattr(loop, loss):
                setattr(loop, loss, torch.compile(getattr(loop, loss), mode=mode))
    batches = [
        {key: torch.from_numpy(getattr(batch, key)) for key in COLUMNS}
        for batch in transitions_of(row, seed)[1]
    ]

    def update(i: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        columns = {key: tensor.to(torch_device) for key, tensor in batches[i % BATCHES].items()}
        rows = {
            key: tensor if tensor.dim() > 1 else tensor[:, None] for key, tensor in columns.items()
        }
        if row.frames:
            rows |= {key: rows[key].float() / 255 for key in ("obs", "next_obs")}
        loop.update(rows)

    with learner_thread(num_threads=1):
        return _rate(update, torch_device, seconds)


def _loop(row: Row) -> Any:
    if row.agent == "sac":
        return bare_updates.Sac(*row.hidden)
    frames = bare_updates.nature(bare_updates.ACTIONS) if row.frames else None
    return bare_updates.Dqn(frames)


def _measure(contender: str, name: str, device: str, seconds: float, seed: int) -> Reading:
    function, _, compiled = contender.partition("_")
    reading: Reading = call(
        f"benchmarks.gpu:{function}",
        **{"name": name, "device": device, "seed": seed, "seconds": seconds},
        compiled=bool(compiled),
    )
    return reading


def gpu_tests() -> dict[str, Any]:
    """Runs the tests that need a GPU and returns their outcome."""
    tests = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(tests, stdout=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(done.stdout)
    return {"status": done.returncode, "summary": (done.stdout.splitlines() or [""])[-1]}


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="seconds per measurement (default: 4)"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu to try the command")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        say(f"skipped: torch {torch.__version__} finds no CUDA GPU (to try out: --device cpu)")
        return
    device_facts = {"device": torch.cuda.get_device_name(device) if on_gpu else str(device)}
    if on_gpu:
        emit("gpu", "tests", device_facts | gpu_tests())
    for name in arguments.rows:
        contenders = {
            contender: partial(_measure, contender, name, arguments.device, arguments.seconds)
            for contender in CONTENDERS
        }
        readings = take_turns(contenders, arguments.repetitions)
        rates = {
            contender: column(results, "updates_per_s") for contender, results in readings.items()
        }
        line: dict[str, Any] = dict(device_facts)
        for mine in ("ours", "ours_compiled"):
            for other in ("bare", "bare_compiled"):
                line[f"{mine}_to_{other}"] = ratios(rates[mine], rates[other])
        line |= {
            contender: summary(results)["updates_per_s"] for contender, results in readings.items()
        }
        emit("gpu", name, line)


if __name__ == "__main__":
    main()
