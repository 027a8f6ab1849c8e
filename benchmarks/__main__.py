"""Runs the benchmarks of the table; prints one JSON object per row, and progress to stderr.

    pip install -e ".[bench]"       Stable-Baselines3, for the rows that compare against it
    python -m benchmarks            about an hour on two idle cores
    python -m benchmarks --quick    about five minutes: one small repetition of everything

Each part is also a command with its own options (`--help`):

    python -m benchmarks.learner      updates/s in a full run, against a bare PyTorch loop
    python -m benchmarks.updates      updates/s of each kind of agent, against a bare PyTorch loop
    python -m benchmarks.matched      the same DQN in border_cli, a bare loop and Stable-Baselines3
    python -m benchmarks.matched_sac  the same SAC in border_cli and Stable-Baselines3
    python -m benchmarks.matched_ppo  the same PPO in border_cli and Stable-Baselines3
    python -m benchmarks.solve        seconds from Enter to CartPole solved
    python -m benchmarks.scaling      samples/s of slow environments, by number of actors
    python -m benchmarks.ratio        samples per update, requested and actual
    python -m benchmarks.start        seconds from Enter to the first update, and back to the prompt
    python -m benchmarks.saving       updates/s with a checkpoint every 30 s, against no checkpoints
    python -m benchmarks.kills        updates lost by a run that is killed 100 times
    python -m benchmarks.prioritized  microseconds per prioritized batch, against a binary tree
    python -m benchmarks.matmul       microseconds per matrix product, with torch and with oneDNN

The following are not part of the table. The last two need the extras `bench` and `export`:

    python -m benchmarks.backends       updates/s in numpy and in torch
    python -m benchmarks.frames         memory of stacked images whose frames are stored once
    python -m benchmarks.lockstep       slow environments in lockstep, against Stable-Baselines3
    python -m benchmarks.exported       acts/s of exported policies: numpy, ONNX and torch

These need the extra `ray`, and the first one `bench-ray`:

    python -m benchmarks.ray_sampling    samples/s through Ray: border_cli, RLlib and TorchRL
    python -m benchmarks.ray_memory      memory while 10,000,000 samples pass through Ray
    python -m benchmarks.ray_scale       samples/s received from 1,000 simulated actors
    python -m benchmarks.cluster_losses  a run whose actors are killed 50 times

This one needs the extras `atari` and `bench`:

    python -m benchmarks.atari          Pong: steps/s and updates/s, against ALE, EnvPool and others

This one needs the extra `envpool`, `gymnasium[box2d,mujoco]` and `minigrid`:

    python -m benchmarks.envpool        EnvPool's transitions against Gymnasium's; env steps/s

These need the extra `tune`:

    python -m benchmarks.halving      how often pruning discards the best trial, simulated
    python -m benchmarks.study_kills  a study whose processes are killed, against an undisturbed one

This one needs the extra `bench` and takes half an hour:

    python -m benchmarks.zoo_search     the RL Zoo's search for DQN: its best score over time

This one needs a GPU:

    python -m benchmarks.gpu            the tests marked `gpu`; updates/s against plain torch loops

`python -m benchmarks.figures NAME` runs a part and stores its rows for docs/inside/benchmarks.md.

The scores of the agents are a separate table, which takes hours: `python -m benchmarks.results
--help`. So is the trial of other people's environments: `python -m benchmarks.third_party --help`.

Within a part, all contenders take turns, and every ratio is computed within one repetition. Most
measurements run in their own processes. Leave the machine idle: `other_cores` in each row is the
number of cores that other programs kept busy. docs/inside/benchmarks.md describes the method.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks.table import say

PARTS: dict[str, list[str]] = {  # module -> arguments for --quick
    "learner": ["--repetitions", "1", "--updates", "500"],
    "updates": ["--repetitions", "1", "--seconds", "1"],
    "matched": ["--repetitions", "1", "--updates", "1000"],
    "matched_sac": ["--repetitions", "1", "--updates", "500"],
    "matched_ppo": ["--repetitions", "1", "--env-steps", "8192"],
    "solve": ["--repetitions", "1"],
    "scaling": ["--repetitions", "1", "--seconds", "1", "--actors", "1", "8", "32"],
    "ratio": ["--ratios", "1", "16"],
    "start": ["--repetitions", "1"],
    "saving": ["--pairs", "1", "--block-s", "5"],
    "kills": ["--kills", "6"],
    "prioritized": ["--repeats", "1000"],
    "matmul": ["--repetitions", "1", "--calls", "50"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small repetition of everything")
    quick = parser.parse_args().quick
    failed = []
    for name, arguments in PARTS.items():
        began_s = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *(arguments if quick else [])]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        say(f"{name}: {time.monotonic() - began_s:.0f} s")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
