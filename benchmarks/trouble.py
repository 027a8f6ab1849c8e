"""Records how commands behave in trouble, so that two checkouts can be compared.

    python -m benchmarks.trouble --bin .venv/bin > before.jsonl         # one line per case
    python -m benchmarks.trouble --bin other/bin > after.jsonl
    python -m benchmarks.trouble --compare before.jsonl after.jsonl     # diffs; status 1 if any

The cases are hangs with and without the interpreter lock, stopped and killed processes, Ctrl-C in
every phase, full disks, deleted and linked folders, run directories from strangers, and invalid
values from environments. A case records the exit status, the last lines printed (without times and
directories), the state in `run.json`, and whatever else it checks. `--only TEXT` runs the cases
whose names contain TEXT. All cases take about ten minutes; the full disk is skipped if no tmpfs can
be mounted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.table import say
from benchmarks.transcripts import MEASURED, WORDS, compare

MODULES = (
    Path(__file__).parents[1] / "tests" / "user_modules"
)  # contains unruly.py: environments that misbehave
DEADLINE_S = 180.0
LAST_LINES = 6
STOPPED_S = 20.0  # four times the stall_timeout_s of that case; see --stopped-s
SMALL = (
    "imports=[unruly]",
    "run_dir=run",
    "trainer.max_opt_steps=1000000",
    "trainer.warmup_period=20",
    "trainer.record_interval=10",
    "agent.hidden=[4]",
    "agent.batch_size=4",
    "evaluator.num_episodes=1",
    "actor_manager.num_actors=1",
    "actor_manager.n_buffer=10",
    "actor_manager.max_restarts=0",
)
CALM = (*SMALL, "env.id=Calm-v0")
BRIEF = (*CALM, "trainer.max_opt_steps=3000", "trainer.eval_interval=1000")
WRONG = {
    "shape": "{observation: [0.5, 0.5]}",
    "text": "{observation: left}",
    "nothing": "{observation: null}",
    "NaN": "{observation: [nan, 0.5, 0.5]}",
    "dict": "{observation: {a: 1}}",
    "reward text": "{reward: much}",
    "reward NaN": "{reward: nan}",
    "reward list": "{reward: [1.0, 2.0]}",
    "flag": "{terminated: 7}",
    "info": "{told: 5}",
}
PLANTED = ("evil", "jax", "IPython", "torch", "numpy", "yaml", "sitecustomize")


@dataclass
class Place:
    """The empty directory of one case, and the commands under test."""

    folder: Path
    commands: Path
    facts: dict[str, Any] = field(default_factory=dict)  # what the case records
    sessions: list[int] = field(default_factory=list)  # session ids of the commands

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def start(self, *typed: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command in its own session; its output goes to the file `printed`."""
        command, *rest = typed if typed[0].startswith("border-") else ("border-train", *typed)
        with (self.folder / "printed").open("ab") as printed:
            process = subprocess.Popen(
                [str(self.commands / command), *rest],
                cwd=options.pop("cwd", self.folder),
                env={**os.environ, "PYTHONPATH": str(MODULES), "COLUMNS": "120", "TERM": "dumb"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        self.sessions.append(process.pid)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for a process; records its status, its last lines and the state of the run."""
        try:
            self.facts["status"] = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self.facts["status"] = f"still running after {DEADLINE_S:g} s: {process.wait()}"
        time.sleep(1.0)  # the monitor may write after the end
        self.facts["printed"] = self.printed()
        self.facts.update(self.state())

    def play(self, *typed: str, **options: Any) -> None:
        self.end(self.start(*typed, **options))

    def printed(self) -> list[str]:
        text = (self.folder / "printed").read_text(errors="replace")
        for path, word in ((self.folder, "DIR"), (self.commands.parent, "VENV")):
            text = text.replace(str(path), word)
        for pattern, word in (*WORDS, *MEASURED):
            text = pattern.sub(word, text)
        text = re.sub(r"0x[0-9a-f]+", "0x", text)
        text = re.sub(r"^ *File .+\n(?: .+\n)?", "", text, flags=re.MULTILINE)  # frames
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-LAST_LINES:]

    def state(self) -> dict[str, Any]:
        try:
            facts = json.loads((self.run / "run.json").read_text())
        except (OSError, ValueError) as error:
            return {"run.json": type(error).__name__}
        reason = str(facts.get("exit_reason"))
        for pattern, word in (*WORDS, *MEASURED):
            reason = pattern.sub(word, reason.replace(str(self.folder), "DIR"))
        return {"run.json": facts.get("status"), "reason": reason}

    def until(
        self,
        ready: Callable[[], bool],
        process: subprocess.Popen[bytes],
        limit_s: float = DEADLINE_S,
    ) -> None:
        """Waits until `ready()` is true, the process has ended or the time is up."""
        end_s = time.monotonic() + limit_s
        while not ready() and process.poll() is None and time.monotonic() < end_s:
            time.sleep(0.02)

    def wait(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Returns whether the process is still running after `seconds`."""
        self.until(lambda: False, process, seconds)
        return process.poll() is None

    def learns(self) -> bool:
        rows = self.run / "metrics.jsonl"
        return rows.exists() and rows.stat().st_size > 0

    def saved(self) -> bool:
        return bool(_saved(self.run))


Play = Callable[[Place], None]


def hang(place: Place, override: str, kind: str, at: int = 100) -> None:
    marker = f"env.kwargs={{at: {at}, marker: {place.folder / 'marker'}}}"
    place.play(*SMALL, f"env.id={kind}-v0", marker, "trainer.stall_timeout_s=3", override)


def stopped(place: Place, seconds: float) -> None:
    """Sends SIGSTOP, waits much longer than a hang may last, then sends SIGCONT."""
    process = place.start(*CALM, "trainer.stall_timeout_s=5")
    place.until(place.learns, process)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGCONT)
    place.facts["goes on"] = place.wait(process, 7.0)
    process.send_signal(signal.SIGINT)
    place.end(process)


def interrupted(place: Place, phase: str, times: int, kind: str = "Calm") -> None:
    """Sends Ctrl-C in a phase of a run, once or twice."""
    marker_setting = (
        [] if kind == "Calm" else [f"env.kwargs={{at: 100, marker: {place.folder / 'marker'}}}"]
    )
    saves = "trainer.save_interval=200"
    process = place.start(*SMALL, f"env.id={kind}-v0", saves, *marker_setting)
    waits = {
        "training": place.learns,
        "saving": place.saved,
        "marker": (place.folder / "marker").exists,
    }
    if phase in waits:
        place.until(waits[phase], process)
    else:
        place.wait(process, {"start": 0.15, "imports": 0.6}[phase])
    began_s = time.monotonic()
    for _ in range(times):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            time.sleep(0.3)
    place.end(process)
    took_s = time.monotonic() - began_s - 1.0
    place.facts["within 8 s"] = took_s < 8.0


def killed(place: Place) -> None:
    """Kills a run twenty times (kill -9); the same command resumes it and finally completes it."""
    overrides = (
        *BRIEF,
        "trainer=sync",
        "resume=auto",
        "trainer.save_interval=100",
        "trainer.max_opt_steps=20000",
    )
    statuses = []
    for _ in range(20):
        process = place.start(*overrides)
        place.until(partial(_newer, place.run, _saved(place.run)), process)
        process.kill()
        statuses.append(process.wait())
    place.facts["kills"] = statuses.count(-signal.SIGKILL)
    place.play(*overrides, "trainer.max_opt_steps=20000")
    rows = [json.loads(row) for row in (place.run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["opt_steps"] for row in rows if "train/loss" in row]
    place.facts["a row for each interval"] = steps == sorted(set(steps))


def _saved(run_dir: Path) -> set[str]:
    return {checkpoint.name for checkpoint in run_dir.glob("checkpoints/*[0-9]")}


def _newer(run_dir: Path, than: set[str]) -> bool:
    return bool(_saved(run_dir) - than)


def deleted(place: Place, what: str) -> None:
    """Deletes the run directory or a part of it during training."""
    process = place.start(*CALM, "trainer.save_interval=500")
    place.until(place.saved, process)
    for path in [place.run] if what == "." else sorted(place.run.glob(what)):
        gone = path.rename(place.folder / "gone")  # atomic, even if it is being written
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    place.facts["goes on"] = place.wait(process, 15.0)
    process.send_signal(signal.SIGINT)
    place.end(process)
    place.facts["made again"] = (place.run / what).exists()


def full_disk(place: Place) -> None:
    """Fills the disk, then frees space again."""
    disk = place.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40M", "none", disk]).returncode:
        place.facts["left out"] = "no tmpfs can be mounted"
        return
    try:
        overrides = ("trainer.save_interval=500", "trainer.record_interval=1000")
        process = place.start(*CALM, f"run_dir={disk / 'run'}", *overrides)
        place.until(partial(_newer, disk / "run", set()), process)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        place.facts["goes on"] = place.wait(process, 10.0)
        filler.unlink()
        before = _saved(disk / "run")
        place.wait(process, 10.0)
        place.facts["saves again"] = _newer(disk / "run", before)
        process.send_signal(signal.SIGINT)
        place.end(process)
    finally:
        subprocess.run(["umount", disk], check=False)


def linked(place: Place, what: str) -> None:
    """Replaces a part of a finished run by a link to other files, then resumes the run."""
    place.play(*BRIEF)
    theirs = place.folder / "theirs"
    path = next(place.run.glob(what))
    if path.is_symlink():  # `best`, our own link
        shutil.copytree(path, theirs)
        path.unlink()
    else:
        path.rename(theirs)
    path.symlink_to(theirs)
    before = _stamps(theirs)
    place.play(*BRIEF, "resume=auto", "trainer.max_opt_steps=4000")
    place.facts["resume"] = place.facts.pop("printed")
    place.play("border-runs", "rm", "run", "--yes")
    place.facts["untouched"] = _stamps(theirs) == before


def _stamps(path: Path) -> dict[str, tuple[int, int]]:
    entries = [path, *path.rglob("*")]
    return {str(entry): (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries}


def stranger(place: Place, typed: tuple[str, ...], inside: bool) -> None:
    """Uses a run whose settings import a module that was planted in its directory."""
    place.play(*BRIEF)
    marker = place.folder / "executed"
    code = f"open({str(marker)!r}, 'a').write(__name__ + ' ')\n"
    for name in PLANTED:
        (place.run / f"{name}.py").write_text(code)
    for settings in place.run.glob(".hydra/*.yaml"):
        text = settings.read_text()
        settings.write_text(text.replace("- unruly\n", "- unruly\n- evil\n"))
    (place.folder / "printed").unlink()
    place.play(*typed, cwd=place.run if inside else place.folder)
    place.facts["executed"] = marker.read_text() if marker.exists() else ""


def unwritable(place: Place) -> None:
    """Trains in a read-only directory, without root's privilege to write there."""
    within = place.folder / "within"
    within.mkdir(mode=0o555)
    place.play(*BRIEF, f"run_dir={within / 'run'}", preexec_fn=without_privileges)


def without_privileges() -> None:
    """Drops root's privilege to bypass file modes, before the command is executed."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def leaves(place: Place, at: int) -> None:
    """Uses an environment that ends its process without a message."""
    place.play(*SMALL, "env.id=Leaves-v0", f"env.kwargs.at={at}")


def wrong(place: Place, value: str, at: int) -> None:
    """Uses an environment whose values do not match its spaces."""
    ends = "trainer.max_opt_steps=3000"
    place.play(*SMALL, "env.id=Wrong-v0", f"env.kwargs={{at: {at}, what: {value}}}", ends)


def too_large(place: Place, override: str) -> None:
    """Asks for more than any memory can hold; the error must come quickly."""
    began_s = time.monotonic()
    place.play(*CALM, override)
    place.facts["within 10 s"] = time.monotonic() - began_s < 10.0


def cases(stopped_s: float) -> Iterator[tuple[str, Play]]:
    """Yields all cases with their names."""
    for actors in ("thread", "serial"):
        override = f"actor_manager={actors}"
        yield f"hang with the lock, {actors}", partial(hang, override=override, kind="Holds")
        yield f"hang, {actors}", partial(hang, override=override, kind="Blocks")
    yield "hang, process", partial(hang, override="actor_manager=process", kind="Blocks")
    yield "hang in the trial", partial(hang, override="actor_manager=thread", kind="Blocks", at=1)
    yield f"SIGSTOP for {stopped_s:g} s", partial(stopped, seconds=stopped_s)
    for phase in ("start", "imports", "training", "saving"):
        for times in (1, 2):
            name = f"Ctrl-C, {phase}, {times}"
            yield name, partial(interrupted, phase=phase, times=times)
    held = partial(interrupted, phase="marker", times=2, kind="Holds")
    yield "Ctrl-C while the lock is held, 2", held
    for place, at in (("step", 100), ("trial", 1)):
        yield f"os._exit(0) in a {place}", partial(leaves, at=at)
    yield "kill -9 twenty times", killed
    for what in (".", "checkpoints", "run.json", "run.lock", "metrics.jsonl", "**/rows*"):
        yield f"deleted: {what}", partial(deleted, what=what)
    yield "full disk", full_disk
    for what in ("checkpoints", "checkpoints/0*", "metrics.jsonl", "run.json", "best"):
        yield f"linked: {what}", partial(linked, what=what)
    for inside in (False, True):
        run_path = "." if inside else "run"
        for typed in (
            ("border-eval", run_path),
            ("border-runs", run_path),
            ("border-plot", run_path),
            ("border-record", run_path, "dataset=stranger/run-v0", "episodes=1"),
            ("border-train", f"resume={run_path}", "trainer.max_opt_steps=4000"),
        ):
            where = "inside" if inside else "outside"
            name = f"stranger: {' '.join(typed)}, from {where}"
            yield name, partial(stranger, typed=typed, inside=inside)
    yield "unwritable", unwritable
    for what, value in WRONG.items():
        for at in (1, 500):
            yield f"wrong {what} at step {at}", partial(wrong, value=value, at=at)
    for override in ("agent.hidden=[100000,100000]", "replay_buffer.capacity=1000000000000"):
        yield f"too large: {override}", partial(too_large, override=override)


@contextmanager
def somewhere(commands: Path) -> Iterator[Place]:
    """Provides an empty directory; kills the remaining processes of the case at the end."""
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name).resolve(), commands)
        try:
            yield place
        finally:
            for session in place.sessions:
                with suppress(ProcessLookupError):
                    os.killpg(session, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bin", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--stopped-s", type=float, default=STOPPED_S)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(1 if compare(*arguments.compare) else 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores SIGINT
    for name, play in cases(arguments.stopped_s):
        if arguments.only in name:
            say(name)
            with somewhere(arguments.bin.absolute()) as place:
                play(place)
            print(json.dumps({"case": name, **place.facts}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
