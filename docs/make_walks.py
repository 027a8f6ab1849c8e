"""Writes walks.md: the files and functions that a command enters from one event to another.

python docs/make_walks.py

Every walk is run, by this interpreter and with the border_cli that it finds. With `--totals` the
page stays, and the totals of each walk are printed: those of another commit are measured so.
Clauses are a person's: they stand in walks.md and are kept. A file that is new to a walk takes its
clause of another walk, else `…`.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

PAGE = Path(__file__).with_name("walks.md")
SUPPORT = Path(__file__).parents[1] / "tests" / "support"
PACKAGE = Path(getattr(find_spec("border_cli"), "origin", "")).parent
WIDTH = 100
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
MISSING = "…"  # a clause that nobody has written
ELSEWHERE = "In other threads and processes alone"
HEAD = """# Walks

What runs from one event to another: every file of the package of which a function is entered, in
the order of first entry, and these functions with their lines; files that only other threads and
processes enter follow by name. Paths are below `border_cli/`. Code that runs where a module is
imported is no part of a walk.

`python docs/make_walks.py` runs the walks and writes this page; only the clause beside a file is a
person's. `tests/test_walks.py` runs them again and compares the files, and in an update the
functions too. Beside other threads it depends on the moment whether, say, a function that waits is
entered: figures of the other walks differ by some functions from run to run. Where a command ends
with `…`, settings follow that keep the run short.

| walk | files | functions | lines | at a08c240: files | functions | lines |
| --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A command, and the part of what it runs that is the walk."""

    title: str
    argv: tuple[str, ...]
    first: tuple[str, ...] = ()  # a command that goes before
    inside: tuple[str, ...] = ()  # only within calls of these functions; each is a part of the walk
    since: str = ""  # from the first call of this function on, else from the start
    until: str = ""  # until this function returns for the first time, else to the end
    one_process: bool = False  # only the process in which `until` returns
    before: tuple[int, int, int]  # files, functions and lines at commit a08c240


QUICK = (
    *("trainer.max_opt_steps=90", "trainer.warmup_period=50", "agent.batch_size=4"),
    *("agent.hidden=[4]", "evaluator.num_episodes=1", "actor_manager.n_buffer=4"),
    *("env.max_episode_steps=20", "run_dir=run", "quiet=true"),
)
CARTPOLE = ("agent=dqn", "env=cartpole")
LEARNER = ("AsyncTrainer.ingest", "UniformReplayBuffer.sample")
WALKS = {
    "first update": Walk(
        title="From Enter to the first update",
        argv=(*CARTPOLE, "run_dir=run", "trainer.max_opt_steps=1"),
        until="TorchAgent.update",
        before=(107, 750, 7242),
    ),
    "job of a sweep": Walk(
        title="A job of a sweep, in its own process, to its first update",
        argv=(
            *("-m", *CARTPOLE, "seed=0,1", "hydra/launcher=processes", "hydra.sweep.dir=sweep"),
            "trainer.max_opt_steps=1",
        ),
        until="TorchAgent.update",
        one_process=True,
        before=(103, 658, 6236),
    ),
    # Which products are faster, mkl's or oneDNN's, differs between processors.
    "dqn": Walk(
        title="One update of DQN",
        argv=(*CARTPOLE, "trainer=sync", "agent.matmul=mkl", *QUICK),
        inside=("TorchAgent.update",),
        before=(6, 25, 226),
    ),
    "sac": Walk(
        title="One update of SAC",
        argv=("agent=sac", "env=pendulum", "trainer=sync", "agent.matmul=mkl", *QUICK),
        inside=("TorchAgent.update",),
        before=(9, 49, 326),
    ),
    # Taxi observes a number: a Box of float32 is copied without the checks of other spaces.
    "threads": Walk(
        title="One sample from a thread's env.step into a batch",
        argv=("agent=dqn", "env=taxi", "actor_manager.num_actors=1", *QUICK),
        inside=("Actor.step", *LEARNER),
        before=(26, 104, 826),
    ),
    "processes": Walk(
        title="One sample from a process's env.step into a batch",
        argv=(
            *("agent=dqn", "env=taxi", "actor_manager=process", "actor_manager.num_actors=1"),
            *QUICK,
        ),
        inside=("ActorProcess._step", *LEARNER),
        before=(29, 128, 1045),
    ),
    # The learner waits for samples when the signal comes: a signal that comes within the function
    # that follows the calls would be handled there, unseen.
    "ctrl-c": Walk(
        title="Ctrl-C, from the signal to the exit",
        argv=(
            *("agent=dqn", "imports=[unruly]", "env.id=Signals-v0"),
            *("env.kwargs={signum: 2, at: 80}", "actor_manager.num_actors=1", "run_dir=run"),
            *("actor_manager.n_buffer=20000", "trainer.warmup_period=20000", "agent.hidden=[4]"),
            "quiet=true",
        ),
        since="_twice.<locals>.handle",
        before=(69, 375, 2958),
    ),
    "checkpoint": Walk(
        title="A checkpoint",
        argv=(*CARTPOLE, *QUICK, "trainer.save_interval=90"),
        inside=("PostStep.save", "WritingThread._run"),
        before=(35, 159, 1165),
    ),
    "resume": Walk(
        title="From Enter to the first update of a run that is resumed",
        first=(*CARTPOLE, "trainer=sync", *QUICK),  # threads may act only after the first update
        argv=("resume=run", "trainer.max_opt_steps=180"),
        until="TorchAgent.update",
        before=(111, 855, 8175),
    ),
}


# In the processes that walk


class Steps(threading.local):
    """The functions that one thread enters: a line in the log for each, at its first call."""

    log: int
    walk: Walk
    begun = True

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.root: FrameType | None = None  # the call that it is inside of
        self.part = 0

    def follow(self, frame: FrameType, event: str, argument: object) -> None:
        """Is called by Python at every call and return."""
        del argument
        code, walk = frame.f_code, self.walk
        if not code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            return
        name = code.co_qualname
        if event == "return":
            if frame is self.root:
                self.root = None
            if name == walk.until:
                self.write("")
        elif event == "call" and code.co_flags & CO_OPTIMIZED:  # else a module or class is made
            if self.root is None and name in walk.inside:
                self.root, self.part = frame, walk.inside.index(name)
            if name == walk.since:
                Steps.begun = True
            if self.begun and (self.root or not walk.inside):
                file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
                self.write(f"{file}|{code.co_firstlineno}|{name}")

    def write(self, what: str) -> None:
        line = f"{os.getpid()}|{threading.current_thread().name}|{self.part}|{what}\n"
        if line not in self.seen:
            self.seen.add(line)
            os.write(self.log, line.encode())


def follow(log: str, settings: dict[str, Any]) -> None:
    """Follows this process; every process that inherits its environment calls this."""
    Steps.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    Steps.walk = Walk(**settings)
    Steps.begun = not Steps.walk.since
    steps = Steps()
    threading.setprofile(steps.follow)
    sys.setprofile(steps.follow)


# What they have seen

Functions = dict[str, int]  # their lines
Parts = dict[str, dict[str, Functions]]  # by the part of the walk, and by file


def walked(walk: Walk, folder: Path) -> Parts:
    """Runs the walk in an empty folder."""
    log = folder / "log"
    (folder / "sitecustomize.py").write_text(  # Python imports it as it starts
        f"import make_walks; make_walks.follow({str(log)!r}, {asdict(walk)!r})"
    )
    command = [sys.executable, "-c", "from border_cli.cli.train import command; command()"]
    paths = [str(SUPPORT), str(PACKAGE.parent)]
    following = [str(folder), str(PAGE.parent), *paths]
    if walk.first:
        _run([*command, *walk.first], folder, paths)
    pid = _run([*command, *walk.argv], folder, following)
    lines = [each.split("|") for each in log.read_text(encoding="utf-8").splitlines()]
    if walk.until:
        end = next(index for index, line in enumerate(lines) if line[3] == "")
        pid, lines = int(lines[end][0]), lines[:end]
    if walk.one_process:
        lines = [line for line in lines if int(line[0]) == pid]
    return _parts(walk, pid, lines)


def _run(argv: list[str], folder: Path, paths: list[str]) -> int:
    variables = {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # pages of machines with and without a GPU are the same
    }
    with subprocess.Popen(
        argv, cwd=folder, env=os.environ | variables,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        said, _ = process.communicate(timeout=100)
    if process.returncode not in (0, 130):
        raise RuntimeError(said.decode())
    return process.pid


def _parts(walk: Walk, pid: int, lines: list[list[str]]) -> Parts:
    inside = [f"In `{name}`" for name in walk.inside]
    titles = inside or ["", ELSEWHERE]
    parts: Parts = {title: {} for title in titles}
    for process, thread, part, file, first, name in lines:
        main = (int(process), thread) == (pid, "MainThread")
        title = titles[int(part) if inside else not main]
        if not name.endswith(COMPREHENSIONS):  # part of the function around it
            parts[title].setdefault(file, {})[name] = _lengths(file)[int(first)]
    if not inside:
        here, elsewhere = parts.values()
        for file in sorted(elsewhere):
            functions = elsewhere.pop(file)
            if file in here:
                here[file] |= functions
            else:
                elsewhere[file] = functions
    return {title: files for title, files in parts.items() if files}


@cache
def _lengths(file: str) -> dict[int, int]:
    """The lines of each function of a file, by its first line, which may be a decorator's."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    lengths: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, functions):
            decorators = getattr(node, "decorator_list", [])
            first = min(each.lineno for each in [node, *decorators])
            lengths.setdefault(first, (node.end_lineno or first) - first + 1)
    return lengths


def _totals(parts: Parts) -> tuple[int, int, int]:
    """Files, functions and their lines; what several parts enter counts once."""
    functions = {
        (file, name): lines
        for files in parts.values()
        for file, entered in files.items()
        for name, lines in entered.items()
    }
    return len({file for file, _ in functions}), len(functions), sum(functions.values())


# The page

ITEM = re.compile(r"^\d+\. `([^`]+)`: (.*?)\n +- `([^`]*)`$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Item:
    """A file on the page."""

    walk: str
    part: str
    file: str
    clause: str
    functions: tuple[str, ...]


def items() -> list[Item]:
    """The files on the page, in order."""
    text = PAGE.read_text(encoding="utf-8")
    found = []
    for section in text.split("\n## ")[1:]:
        walk, _, rest = section.partition("\n")
        main, *more = re.split(r"^(In .*):$", rest, flags=re.MULTILINE)
        for part, files in [("", main), *zip(more[::2], more[1::2], strict=True)]:
            for file, clause, functions in ITEM.findall(files):
                names = tuple(each.split()[0] for each in functions.split(","))
                found.append(Item(walk, part, file, " ".join(clause.split()), names))
    return found


def page(walks: dict[str, Parts]) -> str:
    """The whole page, with the clauses of the one that stands there."""
    old = [each for each in items() if each.clause != MISSING]
    clauses = {(each.walk, each.part, each.file): each.clause for each in old}
    known = {each.file: each.clause for each in reversed(old)}
    table, sections = [], []
    for name, parts in walks.items():
        walk, totals = WALKS[name], _totals(parts)
        table.append(_row(f"[{name}](#{name.replace(' ', '-')})", *totals, *walk.before))
        files, functions, lines = totals
        command = " ".join(["border-train", *walk.argv]).replace(" ".join(QUICK), "…")
        about = f"{walk.title}: `{command}`. {files} files, {functions} functions, {lines:,} lines."
        sections.append(f"\n## {name}\n\n{_filled(about)}\n")
        number = 0
        for part, entered in parts.items():
            sections.append(f"\n{part}:\n\n" if part else "\n")
            for file, its in entered.items():
                number += 1
                clause = clauses.get((name, part, file)) or known.get(file, MISSING)
                sections.append(_item(f"{number}. ", file, clause, its))
    return HEAD + "".join([*table, *sections])


def _row(walk: str, *counts: int) -> str:
    return f"| {' | '.join([walk, *(f'{each:,}' for each in counts)])} |\n"


def _item(number: str, file: str, clause: str, functions: Functions) -> str:
    indent = " " * len(number)
    names = ", ".join(f"{name} {lines}" for name, lines in functions.items())
    first = _filled(f"{number}`{file}`: {clause}", indent)
    return f"{first}\n{_filled(f'{indent}- `{names}`', f'{indent}  ')}\n"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main() -> None:
    walks = {}
    for name, walk in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            walks[name] = walked(walk, Path(folder))
        print(f"{name}: {_totals(walks[name])}")
    if sys.argv[1:] != ["--totals"]:
        PAGE.write_text(page(walks), encoding="utf-8")
        for each in items():
            if each.clause == MISSING:
                print(f"{each.walk}: {each.file} has no clause", file=sys.stderr)


if __name__ == "__main__":
    main()
