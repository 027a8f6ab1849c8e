"""Computes SHA-256 digests of each agent's results, to show whether a code change changes them.

    python -m benchmarks.golden --against COMMIT [--only NAME …]
    python -m benchmarks.golden [--only NAME …] > before.jsonl

The first command compares this folder with a commit. It names the agents whose digests differ, and
fails if one of them has no new line in benchmarks/results/versions.json.

Each case trains for 300 updates with `border-train`, bit-reproducibly, and reads the files of the
run. It has three digests: `weights` over all floats of the saved agent (networks, target networks,
optimiser moments, statistics), `rows` over the transitions in the replay buffer, and `metrics` over
the metric rows without times and rates. The values of the first two are sorted beforehand, so that
the digests depend neither on names nor on the order or grouping of arrays. Equal digests on the
same machine with the same library versions mean equal results; across machines they differ.

The offline cases learn from a data set that `border-record` records from a golden run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results.versions import FILE, Reasons, agent_of, raised_agents, read_versions
from benchmarks.table import say
from border_cli.core.state import load_state

COMMANDS = Path(sys.executable).parent
ROOT = Path(__file__).parents[1]
UPDATES = 300
DATASETS = {"cartpole": "golden/cartpole-v0", "pendulum": "golden/pendulum-v0"}
RECORDED = {"dqn": "cartpole", "sac": "pendulum"}  # case whose run records the data set of an env
COMMON = [
    "~tuned", "seed=3", "quiet=true", f"trainer.max_opt_steps={UPDATES}",
    "trainer.eval_interval=100", "trainer.record_interval=50", "evaluator.num_episodes=3",
]  # fmt: skip
SMALL = ["agent.hidden=[32,32]", "agent.batch_size=32", "trainer.warmup_period=200"]
MASKED = {
    "masked": ["env.id=benchmarks.masked_env:Masked-v0"],
    "pairs": ["env.id=benchmarks.masked_env:MaskedPairs-v0"],
}
PARTS = ("weights", "rows", "metrics")  # of which each case has a digest
METRICS = ("opt_steps", "env_steps", "train/", "eval/", "episode/")

Case = dict[str, list[str]]
Digests = Mapping[str, Mapping[str, str]]  # by case


def cases() -> Case:
    """Returns the overrides of every case, keyed by name."""
    discrete, box = ["env=cartpole"], ["env=pendulum"]
    runs: Case = {}
    for agent in ("dqn", "qrdqn", "iqn", "rainbow", "discrete_cql", "awac", "bc", "iql"):
        runs[agent] = [f"agent={agent}", *discrete, *SMALL]
    for agent in ("sac", "redq", "droq", "tqc", "td3", "ddpg", "cql", "td3_bc"):
        runs[agent] = [f"agent={agent}", *box, *SMALL]
    for agent in ("awac", "bc", "iql"):
        runs[f"{agent}_box"] = [f"agent={agent}", *box, *SMALL]
    runs["random"] = ["agent=random", *discrete, "trainer.warmup_period=200"]
    for name in runs:
        runs[name].append("trainer=sync")
    runs |= {
        "dqn_plain": [*runs["dqn"], "agent.double=false", "agent.tau=1", "agent.loss=mse",
                      "agent.target_interval=50", "step_processor.n_steps=1"],
        "dqn_torch": [*runs["dqn"], "agent.backend=torch"],
        "dqn_dueling": [*runs["dqn"], "agent.dueling=true", "agent.layer_norm=true"],
        "dqn_extended": [*runs["dqn"], "agent.dueling=true", "agent.noisy=true",
                         "agent.exploration=greedy", "agent.normalize_obs=true"],
        "dqn_c51": [*runs["dqn"], "agent.num_atoms=21", "agent.v_min=0", "agent.v_max=100"],
        "dqn_prioritized": [*runs["dqn"], "replay_buffer=prioritized"],
        "dqn_serial": [*runs["dqn"][:-1], "actor_manager=serial"],
        "dqn_vector": [*runs["dqn"], "env.num_envs=4"],
        "dqn_taxi": [*runs["dqn"], "env=taxi", "agent.normalize_reward=true"],
        "dqn_nature_cnn": ["agent=dqn", "env.id=benchmarks.frames_env:Frames-v0",
                           "agent.hidden=[32]", "agent.batch_size=4", "trainer=sync",
                           "trainer.warmup_period=50", "evaluator.max_episode_steps=20",
                           "replay_buffer.capacity=400", "trainer.max_opt_steps=40"],
        "sac_prioritized": [*runs["sac"], "replay_buffer=prioritized", "step_processor.n_steps=3"],
        "sac_serial": [*runs["sac"][:-1], "actor_manager=serial", "agent.normalize_reward=true"],
        "sac_layer_norm": [*runs["sac"], "agent.layer_norm=true", "agent.num_critics=3"],
        "td3_ou": [*runs["td3"], "agent.noise=ornstein_uhlenbeck"],
    }  # fmt: skip
    for agent in ("dqn", "iqn", "discrete_sac", "awac"):
        for name, env in MASKED.items():
            runs[f"{agent}_{name}"] = [f"agent={agent}", *env, *SMALL, "trainer=sync"]
    rollouts = [*SMALL[:2], "env.num_envs=4", "actor_manager.num_actors=1",
                "replay_buffer.n_steps=32"]  # fmt: skip
    unscaled = [*rollouts, "agent.normalize_obs=false", "agent.normalize_reward=false"]
    runs["ppo"] = ["agent=ppo", *discrete, *unscaled]
    runs["a2c"] = ["agent=a2c", *discrete, *unscaled, "replay_buffer.n_epochs=1"]
    runs["ppo_box"] = ["agent=ppo", *box, *rollouts]
    runs["ppo_gsde"] = [*runs["ppo_box"], "agent.exploration=gsde", "agent.sample_freq=5"]
    runs["ppo_torch"] = [*runs["ppo"], "agent.backend=torch"]
    for name, env in MASKED.items():
        runs[f"ppo_{name}"] = ["agent=ppo", *env, *unscaled]
    runs["discrete_sac"] = ["agent=discrete_sac", *discrete, *SMALL, "trainer=sync"]
    for agent in ("discrete_sac", "sac", "cql", "tqc"):
        runs[f"{agent}_compiled"] = [*runs[agent], "agent.compile=true"]
    for agent in ("bc", "awac", "iql", "cql", "td3_bc"):
        runs[f"{agent}_offline"] = _offline(agent, "pendulum")
    for agent in ("discrete_cql", "iql", "dqn"):
        runs[f"{agent}_offline_discrete"] = _offline(agent, "cartpole")
    return runs


def _offline(agent: str, env: str) -> list[str]:
    overrides = [override for override in SMALL if "warmup" not in override]
    data = f"replay_buffer.dataset={DATASETS[env]}"
    return [f"agent={agent}", f"env={env}", *overrides, "trainer=offline", data]


def train(overrides: list[str], run_dir: Path) -> None:
    """Trains one run in its own process."""
    subprocess.run(
        [COMMANDS / "border-train", *COMMON, *overrides, f"run_dir={run_dir}"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def record(run_dir: Path, dataset: str) -> None:
    """Records a data set of four episodes with a run's best model."""
    subprocess.run(
        [COMMANDS / "border-record", run_dir, f"dataset={dataset}", "episodes=4", "seed=5"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def digests(run_dir: Path) -> dict[str, str]:
    """Returns the three digests of a finished run."""
    newest = max(run_dir.glob("checkpoints/[0-9]*/agent.npz"))
    chunks = run_dir.glob("checkpoints/replay/*.npy")
    tables = [array for chunk in chunks for array in _arrays(chunk)]
    return {
        "weights": _digest(_floats(load_state(newest))),
        "rows": _digest(column for table in tables for column in _columns(table)),
        "metrics": hashlib.sha256("\n".join(_metrics(run_dir)).encode()).hexdigest(),
    }


def _arrays(chunk: Path) -> Iterator[NDArray[Any]]:
    """Yields the arrays that a file of transitions contains one after another."""
    with chunk.open("rb") as file:
        while file.peek(1):
            yield np.load(file)


def _floats(state: Any) -> Iterator[NDArray[Any]]:
    """Yields all float arrays in a saved state, whatever their names."""
    if isinstance(state, dict):
        for value in state.values():
            yield from _floats(value)
    elif isinstance(state, list):
        for value in state:
            yield from _floats(value)
    elif isinstance(state, np.ndarray) and state.dtype.kind == "f" and state.ndim:
        yield state


def _columns(rows: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields the columns of a structured array, including nested ones."""
    if rows.dtype.names is None:
        yield rows
    else:
        for name in rows.dtype.names:
            yield from _columns(rows[name])


def _digest(arrays: Iterator[NDArray[Any]]) -> str:
    values = [array.astype(np.float64).ravel() for array in arrays]
    return hashlib.sha256(np.sort(np.concatenate([np.empty(0), *values])).tobytes()).hexdigest()


def _metrics(run_dir: Path) -> Iterator[str]:
    for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield json.dumps({key: row[key] for key in sorted(row) if key.startswith(METRICS)})


def results(only: list[str] | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Runs the cases, or those in `only`, and yields their names and digests."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = str(Path(folder) / "datasets")
        for case, env in RECORDED.items():
            if only is None or any("offline" in name for name in only):
                train(cases()[case], Path(folder) / env)
                record(Path(folder) / env, DATASETS[env])
        for name, overrides in cases().items():
            if only is None or name in only:
                say(name)
                train(overrides, Path(folder) / name)
                yield name, digests(Path(folder) / name)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Checks a commit out into a temporary folder, from which Python can import border_cli."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "commit"
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            conf = folder / "border_cli" / "conf"  # where a wheel has it
            if not conf.exists():
                conf.symlink_to(Path("..") / "conf")
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def results_of(folder: Path, only: list[str] | None) -> Digests:
    """Runs the cases that another folder's version of this module has, with that folder's code."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    lines = subprocess.run(
        [sys.executable, "-m", "benchmarks.golden", *(["--only", *only] if only else [])],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.splitlines()  # fmt: skip
    rows = [json.loads(line) for line in lines]
    return {row["row"]: {name: row[name] for name in PARTS} for row in rows}


def differing_cases(then: Digests, now: Digests) -> dict[str, list[str]]:
    """Returns, by agent, the cases with other digests, of those that both sides have.

    An offline case whose data set was recorded by a run with other digests is left out.
    """
    differing = {name for name in then.keys() & now.keys() if then[name] != now[name]}
    other_data = {f"env={env}" for case, env in RECORDED.items() if case in differing}
    by_agent: dict[str, list[str]] = {}
    for name, overrides in cases().items():
        if name in differing and not ("offline" in name and other_data & {*overrides}):
            by_agent.setdefault(agent_of(overrides), []).append(name)
    return by_agent


def compare(commit: str, only: list[str] | None) -> int:
    """Compares this folder with a commit; returns the exit status."""
    if only and any("offline" in name for name in only):
        only = [*only, *RECORDED]
    with checkout(commit) as folder:
        then = results_of(folder, only)
        saved = folder / FILE.relative_to(ROOT)
        versions: Reasons = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else {}
    now = dict(results(only))
    differing = differing_cases(then, now)
    raised = raised_agents(versions, read_versions())
    for agent, names in differing.items():
        version = "version raised" if agent in raised else "version not raised"
        print(f"{agent}: other digests in {', '.join(names)}; {version}")
    print(f"{len(then.keys() & now.keys())} cases compared, {len(differing)} agents differ")
    missing = sorted(differing.keys() - raised)
    if missing:
        print(
            f"Add a line for {', '.join(missing)}, or for the rows that change, to "
            f"{FILE.relative_to(ROOT)}. If only rounding differs, or other random numbers of the "
            "same distribution are drawn, add none and say so in the commit message."
        )
    return 1 if missing else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only these cases")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    arguments = parser.parse_args()
    if arguments.against:
        sys.exit(compare(arguments.against, arguments.only))
    for name, digests_of_case in results(arguments.only):
        line = {"benchmark": "golden", "row": name, **digests_of_case}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
