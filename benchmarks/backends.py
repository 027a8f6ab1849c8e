"""Updates/s of dqn and ppo in numpy and in torch, by the size of networks and batches.

    python -m benchmarks.backends [--repetitions 3] [--seconds 1]

The measurement behind `LARGE` in `agent/backend_choice.py`. Two hidden layers, one thread,
updates on precomputed batches: dqn with double Q-learning, relu and clipping, ppo with tanh. Each
measurement runs in its own process, and the backends take turns.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.isolated import call
from benchmarks.table import Reading, column, emit, make_parser, ratios, summary, take_turns
from benchmarks.updates import BATCHES, batches_of, rate, spec_of
from border_cli.core.types import Batch
from border_cli.registry import AGENTS, register_builtin

SIZES = [(64, 64), (64, 256), (128, 128), (256, 64), (256, 256), (512, 64), (512, 256), (1024, 64)]
BACKENDS = "numpy", "torch"


def measure(agent_name: str, hidden: int, rows: int, backend: str, **timing: float) -> Reading:
    """Measures one agent with two hidden layers of this size and batches of this many rows."""
    register_builtin()
    settings: dict[str, Any] = {"hidden": [hidden, hidden], "batch_size": rows, "backend": backend}
    config = AGENTS.entry(agent_name).config_type(**settings)
    seed = int(timing["seed"])
    agent = AGENTS.build(config, spec=spec_of("dqn"), device="cpu", seed=seed)
    batches = [_with_columns(agent, batch) for batch in batches_of("dqn", seed, rows)]
    with agent.learner_thread():
        return rate(lambda i: agent.update(batches[i % BATCHES]), timing["seconds"])


def _measure(seed: int, **sizes: Any) -> Reading:
    reading: Reading = call("benchmarks.backends:measure", seed=seed, **sizes)
    return reading


def _with_columns(agent: Any, batch: Batch) -> Batch:
    """Adds random numbers for the columns that the agent needs."""
    rng = np.random.default_rng(0)
    rows = len(batch)
    batch.extras = {
        name: rng.normal(0, 0.1, (rows, *shape)).astype(dtype)
        for name, dtype, shape in agent.batch_columns
    }
    return batch


def main() -> None:
    parser = make_parser(__doc__, repetitions=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement (default: 1)")
    arguments = parser.parse_args()
    for name in ("dqn", "ppo"):
        for hidden, rows in SIZES:
            sizes = {"agent_name": name, "hidden": hidden, "rows": rows}
            contenders = {
                backend: partial(_measure, backend=backend, seconds=arguments.seconds, **sizes)
                for backend in BACKENDS
            }
            readings = take_turns(contenders, arguments.repetitions)
            rates = [column(readings[backend], "updates_per_s") for backend in BACKENDS]
            line: dict[str, Any] = {"numpy_to_torch": ratios(*rates)}
            line |= {
                backend: summary(results)["updates_per_s"] for backend, results in readings.items()
            }
            emit("backends", f"{name} [{hidden}, {hidden}] x {rows}", line)


if __name__ == "__main__":
    main()
