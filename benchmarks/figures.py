"""Runs benchmarks and stores their rows for docs/inside/benchmarks.md.

    python -m benchmarks.figures NAME …     NAME: a part of the page, such as matched
    python -m benchmarks.figures            writes the stored figures into the tables of the page

Writes benchmarks/results/figures/NAME.json: the commands, the date, the commit, the machine with
the versions of the libraries, and the rows by command; then the tables of the page.
`docs/claims.yaml` lists the values that the pages show. Figures and dates in sentences are changed
by hand; `tests/test_claims.py` fails until they are those of the files.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.claims import fill
from benchmarks.results.cells import commit
from benchmarks.table import say

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "results" / "figures"
GYM_FAMILIES = "'classic control' 'toy text' box2d 'mujoco v4' 'mujoco v5' minigrid"
COMMANDS = {  # file -> label -> command
    "learner": {
        "learner": "learner --rows process_paced_4 process_free thread_paced_4 thread_free"
    },
    "matched": {"matched": "matched"},
    "updates": {"updates": "updates --agents iqn sac td3 iql"},
    "backends": {"backends": "backends"},
    "matched_sac": {"sac": "matched_sac"},
    "matched_ppo": {
        shape: f"matched_ppo --shape {shape}" for shape in ("zoo", "cleanrl", "single")
    },
    "solve": {
        "dqn": "solve --repetitions 12 --rows border_train import_torch",
        "ppo": "solve agent=ppo --repetitions 20 --rows border_train import_torch sb3_ppo",
    },
    "scaling": {"scaling": "scaling --actors 1 8 32"},
    "lockstep": {"lockstep": "lockstep --sleeps-ms 1 20"},
    "ray": {
        "sampling": "ray_sampling --rows ours rllib torchrl",
        "memory": "ray_memory",
        "losses": "cluster_losses",
    },
    "atari": {"atari": "atari"},
    "frames": {"frames": "frames"},
    "envpool": {
        "gymnasium": f"envpool --agents --families {GYM_FAMILIES}",
        "babyai": "envpool --agents --families babyai",
        "dm_control": "envpool --agents --families dm_control",
        "humanoids": "envpool --agents --families 'dm_control free' --transitions 3200",
    },
    "envpool_runs": {"runs": "envpool --families"},
    "gpu": {"gpu": "gpu"},
    "exported": {"exported": "exported"},
    "halving": {"halving": "halving --studies 240"},
}


def measure(commands: Mapping[str, str]) -> dict[str, Any]:
    """Runs benchmarks; returns the content of a file, with the rows of each by its label."""
    began = datetime.now()
    rows: dict[str, dict[str, Any]] = {}
    machine: dict[str, Any] = {}
    for label, command in commands.items():
        say(f"python -m benchmarks.{command}")
        rows[label] = {}
        for line in _run(command).splitlines():
            row = json.loads(line)
            machine = row.pop("machine")
            rows[label][row.pop("row")] = row
        if not rows[label]:
            sys.exit(f"{command}: no rows, nothing is stored")
    return {
        "commands": [f"python -m benchmarks.{command}" for command in commands.values()],
        "date": f"{began:%Y-%m-%d}",
        "commit": commit(),
        "machine": machine,
        "rows": rows,
    }


def _run(command: str) -> str:
    """Returns the output of a benchmark."""
    words = [sys.executable, "-m", *shlex.split(f"benchmarks.{command}")]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def write(name: str, content: dict[str, Any]) -> None:
    """Stores the content of a file."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(COMMANDS))
    names = parser.parse_args().names
    unknown = set(names) - COMMANDS.keys()
    if unknown:
        parser.error(f"no part of the page: {', '.join(sorted(unknown))}")
    for name in names:
        write(name, measure(COMMANDS[name]))
    proofs = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))
    page = ROOT / "docs" / "inside" / "benchmarks.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), proofs, ROOT), encoding="utf-8")


if __name__ == "__main__":
    main()
