"""A process killed at any point of a save loses at most one checkpoint; the others are complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.case_sampling import ALL, sampled, thinned

ROOT = Path(__file__).parents[2]

KILL_EVERYWHERE = """
import os, shutil, sys
from pathlib import Path
from tests.support.small_run import SmallRun, counters, evaluation_of
from border_cli.run.checkpoint_files import read_checkpoint
from border_cli.run.finding import find_resumable

RUN_DIR, KIND, STRIDE = Path(sys.argv[1]) / "run", sys.argv[2], int(sys.argv[3])
os.fsync = lambda descriptor: None  # slow, and only matters if the machine crashes

def save(run, n):
    step = 20 if KIND == "next" and n == 2 else 10
    run.save(step, n=n, push=4)
    run.store.save_best({"n": n}, counters(step), evaluation_of(float(n)))
    assert run.store.wait(60)

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
        run = SmallRun(RUN_DIR, keep=1, capacity=6, milestone_interval=10)
        run.resume()
        sys.addaudithook(hook)
        save(run, 2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

def in_child(work):
    child = os.fork()  # keeps this process free of threads
    if child == 0:
        try:
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, count

def first():
    RUN_DIR.mkdir()
    save(SmallRun(RUN_DIR, keep=1, capacity=6, milestone_interval=10), 1)

def check():
    run = SmallRun(RUN_DIR, keep=1, capacity=6, milestone_interval=10)
    for which in ("latest", "best"):
        assert run.weights(which) in ("weights 1", "weights 2"), which
    saved = run.resume()
    assert run.numbers == ([0, 1, 2, 3] if run.buffer.ring.pushed == 4 else [2, 3, 4, 5, 6, 7])
    marks.joinpath((saved.folder / "agent.npz").read_text()).touch()
    save(run, 3)  # the next process resumes in the same folder
    for which in ("latest", "best"):
        assert run.weights(which) == "weights 3", which
    left = [path.name for path in run.folder.rglob("*") if path.name.endswith(".partial")]
    assert not left, left
    steps = map(read_checkpoint, find_resumable(RUN_DIR))
    listed = {chunk.name for step in steps for chunk in step.chunks}
    assert {path.name for path in (run.folder / "replay").iterdir()} == listed

count = 0
marks = Path(sys.argv[1]) / "marks"
marks.mkdir()
while True:
    in_child(first)
    killed = killed_at(count)
    in_child(check)
    shutil.rmtree(RUN_DIR)
    if not killed:
        break
    count += STRIDE
assert {mark.name for mark in marks.iterdir()} == {"weights 1", "weights 2"}
print(count)
"""

KILL_AT_RANDOM = """
import os, random, select, signal, sys, time
from pathlib import Path
import numpy as np
from tests.support.small_run import SmallRun

RUN_DIR, KILLS, IMAGES = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "images"
RANDOM = random.Random(5)

def small_run():
    return SmallRun(RUN_DIR, keep=2, capacity=1500, images=IMAGES, prioritized=True,
                    milestone_interval=40)

def save_forever(writer, opt_steps):
    run = small_run()
    if opt_steps:
        assert run.resume().opt_steps == opt_steps
    while True:
        opt_steps += 1
        # The learner continues while the rows are being written.
        run.push(RANDOM.choice([0, 7, 300, 2000]))
        run.buffer.sample(8)
        assert run.store.save(run.state(opt_steps, pushed=run.buffer.ring.pushed))
        run.push(100)
        assert run.store.wait(60)
        assert run.store.report.failures == 0, run.store.report
        os.write(writer, opt_steps.to_bytes(4, "big"))

def check():
    run = small_run()
    saved = run.resume()
    end = saved.run["pushed"]
    expected = list(range(max(0, end - 1500), end))
    numbers = run.buffer.rows(np.arange(len(run.buffer))).reward.astype(int)
    assert sorted(numbers) == expected, (saved.opt_steps, end)
    if not IMAGES:
        assert run.numbers == expected
    assert (saved.folder / "agent.npz").read_text() == f"weights {saved.opt_steps}"
    return saved.opt_steps

newest, kills, inside = 0, 0, 0
while kills < KILLS or not inside:  # on a busy machine, more kills may be needed for one in a save
    kills += 1
    assert kills <= 10 * KILLS, "no kill happened during a save"
    RANDOM.random()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            save_forever(writer, newest)
        finally:
            os._exit(1)
    os.close(writer)
    end_s, reported = time.monotonic() + 0.01 + 0.15 * RANDOM.random(), newest
    # Until a checkpoint has been written, wait for one before killing.
    while (left_s := end_s - time.monotonic()) > 0 or reported == 0:
        if select.select([reader], [], [], max(0.0, left_s) if reported else None)[0]:
            reported = int.from_bytes(os.read(reader, 4), "big")
    os.kill(child, signal.SIGKILL)
    while rest := os.read(reader, 4):
        reported = int.from_bytes(rest, "big")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    os.close(reader)
    left = [path.name for path in (RUN_DIR / "checkpoints").rglob(".*")]
    inside += bool(left)
    newest = check()
    assert newest in (reported, reported + 1), (newest, reported)
print(newest, inside)
"""


def run_script(script: str, *arguments: str) -> list[int]:
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": "1",  # a thread would not survive a fork
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, timeout=300, env=environment,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return [int(word) for word in process.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", thinned(["same", "next"], 2))
def test_a_kill_at_any_file_operation_of_a_save_loses_nothing(tmp_path: Path, kind: str) -> None:
    """Kills a process that saves the next step, or the same step a second time. Without EVERY=1, at
    every second operation."""
    (count,) = run_script(KILL_EVERYWHERE, str(tmp_path), kind, "1" if ALL else "2")
    assert count > 40


@pytest.mark.slow
@pytest.mark.parametrize("rows", sampled(["small", "images"], every=2))
def test_after_every_kill_the_newest_checkpoint_works_and_the_run_goes_on(
    tmp_path: Path, rows: str
) -> None:
    newest, _ = run_script(KILL_AT_RANDOM, str(tmp_path), "20", rows)
    assert newest >= 1


@pytest.mark.long
@pytest.mark.stress
@pytest.mark.parametrize("rows", ["small", "images"])
def test_kills_lose_nothing_that_was_reported_written(tmp_path: Path, rows: str) -> None:
    run_script(KILL_AT_RANDOM, str(tmp_path), "200" if ALL else "40", rows)
