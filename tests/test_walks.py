"""The walks of docs/walks.md: what they name is there, and entered by a real run in that order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from sampling import chosen

ROOT = Path(__file__).parents[1]
SUPPORT = Path(__file__).parent / "support"
BOUNDS = {  # the files that a walk may have
    "dqn": 7,
    "sac": 9,
    "first update": 10,
    "thread": 9,
    "process": 12,
    "ray": 14,
    "ctrl-c": 8,
    "checkpoint": 9,
    "resume": 14,
}
# From the settings of a command down to what its parts are made of: calls go down.
LEVELS = (
    {"cli"},
    {"api.py"},
    {"config"},
    {"launch"},
    {"trainer"},
    {"actor_manager", "agent", "env", "evaluator", "recorder", "replay_buffer", "step_processor"},
    {"dataset", "hydra_plugin", "nn", "process", "registry.py", "run"},
    {"core"},
)
NO_CODE = {".json", ".npy", ".npz", ".pt", ".py", ".yaml"}  # files of a run, of `conf/`, and ours
SMALL = (
    *("trainer.max_opt_steps=4", "trainer.warmup_period=16", "agent.batch_size=4"),
    *("agent.hidden=[4]", "evaluator.num_episodes=1", "actor_manager.n_buffer=4"),
    *("env.max_episode_steps=20", "run_dir=run", "quiet=true"),
)


Walked = tuple[dict[str, list[str]], set[tuple[str, str]]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A command that walks, and which part of it is the walk."""

    argv: tuple[str, ...]
    before: tuple[str, ...] = ()  # a command that goes before
    begin: str = ""
    end: str = ""
    # The threads whose calls count, in the order of their parts of the walk, and with how many
    # files each part begins: names of threads, and of another process the file where it begins.
    threads: Mapping[str, int] = field(default_factory=lambda: {"MainThread": 0})


RUNS = {
    "dqn": Run(
        argv=("agent=dqn", "env=cartpole", "trainer=sync", *SMALL),
        begin="agent/torch_agent.py:update",
        end="agent/torch_agent.py:update",
    ),
    "sac": Run(
        # With oneDNN, which other processors choose, products come before all that calls them.
        argv=("agent=sac", "env=pendulum", "trainer=sync", "agent.matmul=mkl", *SMALL),
        begin="agent/torch_agent.py:update",
        end="agent/torch_agent.py:update",
    ),
    "first update": Run(
        argv=("agent=dqn", "env=cartpole", "run_dir=run", "trainer.max_opt_steps=1"),
        end="agent/torch_agent.py:update",
    ),
    # Numbers instead of a Box of float32, which the environments' loop copies by itself.
    "thread": Run(
        argv=("agent=dqn", "env=taxi", "actor_manager.num_actors=1", *SMALL),
        begin="actor_manager/actor.py:step trainer/trainer.py:ingest",
        end="actor_manager/thread.py:_send replay_buffer/uniform.py:sample",
        threads={"actor 0": 0, "MainThread": 5},
    ),
    "process": Run(
        argv=(
            *("agent=dqn", "env=taxi", "actor_manager=process", "actor_manager.num_actors=1"),
            *SMALL,
        ),
        begin="actor_manager/actor_process.py:_step trainer/trainer.py:ingest",
        end="actor_manager/shared_channel.py:send replay_buffer/uniform.py:sample",
        threads={"actor_manager/actor_process.py": 0, "MainThread": 8},
    ),
    "ray": Run(
        argv=("agent=dqn", "env=taxi", "actor_manager=ray", "actor_manager.num_actors=1", *SMALL),
        begin=(
            "actor_manager/remote_actor.py:act actor_manager/broker.py:step "
            "trainer/trainer.py:ingest"
        ),
        end=(
            "actor_manager/remote_actor.py:answer_of actor_manager/shared_ring.py:put "
            "replay_buffer/uniform.py:sample"
        ),
        threads={
            "actor_manager/remote_actor.py": 0,
            "actor_manager/broker.py": 6,
            "MainThread": 10,
        },
    ),
    # The learner waits for samples when the signal comes: a signal that comes within the function
    # that follows the calls would be handled there, unseen.
    "ctrl-c": Run(
        argv=(
            *(
                "agent=dqn",
                "imports=[unruly]",
                "env.id=Signals-v0",
                "env.kwargs={signum: 2, at: 80}",
            ),
            *("actor_manager.num_actors=1", "actor_manager.n_buffer=1000", "run_dir=run"),
            *("trainer.warmup_period=1000", "agent.hidden=[4]", "quiet=true"),
        ),
        begin="launch/signals.py:handle",
        end="launch/signals.py:handle",
    ),
    "checkpoint": Run(
        argv=("agent=dqn", "env=cartpole", *SMALL, "trainer.save_interval=4"),
        begin="trainer/post_step.py:save run/checkpoint.py:_run",
        end="trainer/post_step.py:save run/checkpoint.py:_run",
        threads={"MainThread": 0, "checkpoints": 5},
    ),
    "resume": Run(
        before=("agent=dqn", "env=cartpole", *SMALL),
        argv=("resume=run", "trainer.max_opt_steps=8"),
    ),
}


@dataclass(frozen=True)
class Line:
    """A line of a walk."""

    file: str
    names: tuple[str, ...]  # what stands in backticks, in order

    @property
    def source(self) -> str:
        return (ROOT / "border_cli" / self.file).read_text(encoding="utf-8")

    @property
    def function(self) -> str:
        """The first function or method of the file that the line names."""
        defined = re.findall(r"^ *def (\w+)", self.source, re.MULTILINE)
        return next(each for each in self.names if each.rpartition(".")[2] in defined)


def walks() -> dict[str, list[Line]]:
    """The lines of the page, by heading."""
    page = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
    found: dict[str, list[Line]] = {}
    for section in page.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        items = re.split(r"^\d+\. ", text, flags=re.MULTILINE)[1:]
        lines = found.setdefault(heading, [])
        for file, *names in (re.findall(r"`([^`]+)`", each) for each in items):
            lines.append(Line(file, tuple(names)))
    return found


def walked(run: Run, folder: Path) -> Walked:
    """The functions that each thread entered, in order, as `file:function`; and in the main thread
    which file called which."""
    out = folder / "walk"
    (folder / "sitecustomize.py").write_text("import walking")  # in child processes, too
    path = os.pathsep.join(map(str, (folder, SUPPORT, ROOT)))
    variables = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    following = {"WALK": str(out), "WALK_BEGIN": run.begin, "WALK_END": run.end}
    code = "from border_cli.cli.train import command; command()"
    main = 0
    for argv, more in [*([(run.before, {})] if run.before else []), (run.argv, following)]:
        with subprocess.Popen(
            [sys.executable, "-c", code, *argv],
            cwd=folder, env=variables | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            said, _ = process.communicate(timeout=100)
        main = process.pid
        assert process.returncode in (0, 130), said.decode()
    threads: dict[tuple[int, str], list[str]] = {}
    calls = set()
    for line in out.read_text(encoding="utf-8").splitlines():
        pid, name, what = line.split("|")
        if " -> " in what:
            if (int(pid), name) == (main, "MainThread"):
                above, _, below = what.partition(" -> ")
                calls.add((above, below))
        elif what:
            threads.setdefault((int(pid), name), []).append(what)
        else:
            threads[int(pid), name] = []  # it begins anew
    entered = {
        name if pid == main else found[0].partition(":")[0]: found
        for (pid, name), found in threads.items()
    }
    return entered, calls


def level(path: str) -> int:
    room = path.partition("/")[0]
    return next(index for index, rooms in enumerate(LEVELS) if room in rooms)


def test_the_page_has_every_walk_and_each_is_short_enough() -> None:
    counts = {name: len(lines) for name, lines in walks().items()}
    assert counts.keys() == BOUNDS.keys()
    assert {name for name, count in counts.items() if not 1 < count <= BOUNDS[name]} == set()


@pytest.mark.parametrize("name", RUNS)
def test_code_that_a_line_names_stands_in_its_file(name: str) -> None:
    """Or in another file that the line names; files of a run and of `conf/` are no code."""
    for line in walks()[name]:
        files = {each for each in line.names if each.endswith(".py")}
        code = line.source + "".join(source_of(each, line.file) for each in files)
        for each in line.names:
            if re.fullmatch(r"[\w.]+(\(\))?", each) and Path(each).suffix not in NO_CODE:
                for word in each.removesuffix("()").split("."):
                    assert re.search(rf"\b{word}\b", code), f"{line.file}: {each}"


def source_of(file: str, beside: str) -> str:
    """Of `actor_manager/worker.py`, or of `worker.py` in the same folder."""
    package = ROOT / "border_cli"
    path = package / file if "/" in file else package / Path(beside).with_name(file)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def walked_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Walked]:
    """`walked` by the name of a run; one that was walked before is not walked again."""
    return cache(lambda name: walked(RUNS[name], tmp_path_factory.mktemp("walk")))


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *chosen([name for name in RUNS if name != "ray"], ["first update"]),
        pytest.param("ray", marks=pytest.mark.ray),
    ],
)
def test_a_run_enters_what_its_walk_names_in_that_order(
    name: str, walked_once: Callable[[str], Walked]
) -> None:
    named, run = walks()[name], RUNS[name]
    assert len({line.file for line in named}) == len(named)
    entered, _ = walked_once(name)
    begins = [*run.threads.values(), len(named)]
    for thread, begin, end in zip(run.threads, begins, begins[1:], strict=False):
        part = named[begin:end]
        first = {line: position(line, entered[thread]) for line in part}
        assert sorted(part, key=first.__getitem__) == part


def position(line: Line, entered: list[str]) -> int:
    """When the function was entered that a line names first."""
    found = [
        place
        for place, each in enumerate(entered)
        if each == f"{line.file}:{line.function}"
        or (each.startswith(f"{line.file}:") and each.endswith(f".{line.function}"))
    ]
    assert found, f"{line.file}:{line.function} is not entered"
    return found[0]


@pytest.mark.long
def test_from_enter_to_the_first_update_calls_go_down_only(
    walked_once: Callable[[str], Walked],
) -> None:
    _, calls = walked_once("first update")
    calls = {call for call in calls if call[1] != "launch/logs.py"}  # any file may log
    assert len(calls) > 50
    assert sorted(call for call in calls if level(call[0]) > level(call[1])) == []
