"""A process that is killed anywhere in a save leaves complete checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KILL_EVERYWHERE = """
import copy, os, shutil, sys
from pathlib import Path
from border_cli.core.interfaces import Evaluation
from border_cli.run.checkpoint import CheckpointStore, find_checkpoint, verify

RUN_DIR, KIND = Path(sys.argv[1]) / "run", sys.argv[2]
os.fsync = lambda descriptor: None  # slow, and for machines that crash

def save_state(state, path):
    path.write_text(f"weights {state['n']}")

UNUSED = CheckpointStore(RUN_DIR, keep=1, save_state=save_state)  # to read versions takes 5 ms

def save(store, n):
    evaluation = Evaluation(score=1.0, returns=(1.0,), lengths=(1,), metrics={})
    step = 20 if KIND == "next" and n == 2 else 10
    store.save({"n": n}, {"opt_steps": step})
    store.save_best({"n": n}, {"opt_steps": step}, evaluation)

def killed_at(count):
    left = count
    def hook(event, arguments):
        nonlocal left
        if event.partition(".")[0] in ("os", "open", "shutil"):
            if left == 0:
                os._exit(9)
            left -= 1
    child = os.fork()
    if child == 0:
        store = copy.copy(UNUSED)
        sys.addaudithook(hook)
        save(store, 2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

def weights(which):
    folder = find_checkpoint(RUN_DIR, which)
    verify(folder)
    return (folder / "agent.pt").read_text()

count, newest = 0, set()
while True:
    RUN_DIR.mkdir()
    save(copy.copy(UNUSED), 1)
    killed = killed_at(count)
    for which in ("latest", "best"):
        newest.add(weights(which))
    save(copy.copy(UNUSED), 3)  # the next process goes on in the same folder
    for which in ("latest", "best"):
        assert weights(which) == "weights 3", (count, which)
    left = [each.name for each in (RUN_DIR / "checkpoints").iterdir() if each.is_dir()]
    hidden = [name for name in left if name.startswith(".")]
    assert not hidden, (count, hidden)
    shutil.rmtree(RUN_DIR)
    if not killed:
        break
    count += 1
assert newest == {"weights 1", "weights 2"}, newest
print(count)
"""


def kill_everywhere(folder: Path, kind: str) -> int:
    """Kills a save at each of its file operations, one process each; returns how many."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # a thread would not survive a fork
    done = subprocess.run(
        [sys.executable, "-c", KILL_EVERYWHERE, str(folder), kind],
        capture_output=True, text=True, timeout=100, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_kill_while_the_next_step_is_saved_loses_nothing(tmp_path: Path) -> None:
    assert kill_everywhere(tmp_path, "next") > 20


def test_a_kill_while_the_same_step_is_saved_again_loses_nothing(tmp_path: Path) -> None:
    assert kill_everywhere(tmp_path, "same") > 20
