"""Seconds from Enter to solved: `border-train agent=dqn env=cartpole` as a user types it.

    python -m benchmarks.solve [OVERRIDE …] [--seeds 0 1 2 3 4] [--env cartpole] [--threshold 475]

Each seed is a process of its own, timed from its start to its exit. Its best model is then judged
by `border-eval` in 20 episodes that the run never saw. A run that did not reach the threshold
counts as not solved, whatever it thought itself. Overrides are passed on, for example
`trainer=sync`. `cpu_s`, the CPU time of all threads of the same process, says more than the clock
where the machine has other work. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import facts, load

EPISODES = 20
FRESH = 1_000_000  # no seed of a run comes near
COMMANDS = Path(sys.executable).parent


def solve(env: str, overrides: list[str], seed: int, threshold: float) -> dict[str, Any]:
    """Trains and judges one seed. Raises CalledProcessError where a command fails."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        typed = ["agent=dqn", f"env={env}", f"seed={seed}", f"run_dir={run_dir}", *overrides]
        began_s, cpu_began_s = time.monotonic(), _children_cpu_s()
        _run("border-train", typed)
        wall_s, cpu_s = time.monotonic() - began_s, _children_cpu_s() - cpu_began_s
        judge = [str(run_dir), f"seed={FRESH + seed}", f"episodes={EPISODES}", "--json"]
        score = json.loads(_run("border-eval", judge))["mean"]
        run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    return {
        "seed": seed,
        "wall_s": round(wall_s, 2),
        "cpu_s": round(cpu_s, 2),
        "score": round(score, 1),
        "solved": score >= threshold,
        "opt_steps": run["opt_steps"],
        "env_steps": run["env_steps"],
        "load": load(),
    }


def _children_cpu_s() -> float:
    """CPU time of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _run(command: str, arguments: list[str]) -> str:
    answer = subprocess.run(
        [COMMANDS / command, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return answer.stdout


def measure(env: str, overrides: list[str], seeds: list[int], threshold: float) -> dict[str, Any]:
    """All seeds, one after another, and what follows from them."""
    runs = [solve(env, overrides, seed, threshold) for seed in seeds]
    return {
        "benchmark": "solve",
        "command": " ".join(["border-train", "agent=dqn", f"env={env}", *overrides]),
        "threshold": threshold,
        "solved": f"{sum(run['solved'] for run in runs)} of {len(runs)}",
        "median_s": round(median(run["wall_s"] for run in runs), 2),
        "median_cpu_s": round(median(run["cpu_s"] for run in runs), 2),
        "worst_s": max(run["wall_s"] for run in runs),
        "seeds": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="settings to pass on, such as trainer=sync")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--env", default="cartpole")
    parser.add_argument("--threshold", type=float, default=475.0)
    arguments = parser.parse_args()
    print(json.dumps({**measure(**vars(arguments)), **facts()}))


if __name__ == "__main__":
    main()
