"""Installs a tool into a virtual environment of its own, and runs the script of a task there."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Mapping
from datetime import date
from importlib.metadata import distributions
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.comparison.peers import RESULTS, ROOT, SCRIPTS, TORCH, Peer, Task
from benchmarks.machine import facts
from benchmarks.third_party.commands import Commands, Ended, end_processes_of

INSTALL_LIMIT_S = 1800.0
TASK_LIMIT_S = 1200.0
PASSED_ON = ("LANG", "LC_ALL", "SSL_CERT_FILE")  # nothing else of the user's environment is
OWN_SOURCES = ("border_cli", "conf", "pyproject.toml", "README.md", "LICENSE")
OWN_EXTRAS = "tune,export,plot"
POINTS = 25  # of a curve
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")

Result = dict[str, Any]


def result_path(peer: Peer) -> Path:
    return RESULTS / f"{peer.name}.json"


def read_result(peer: Peer) -> Result:
    """Returns the result of a tool; empty if it was not tried yet."""
    path = result_path(peer)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_result(peer: Peer, result: Result) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    result_path(peer).write_text(text, encoding="utf-8")


def body_of(script: str) -> str:
    """Returns a script without its comments, which may change without another run."""
    return "".join(f"{line}\n" for line in script.splitlines() if not line.startswith("#"))


def script_path(peer: Peer, task: Task) -> Path:
    return SCRIPTS / peer.name / f"{task.name}.sh"


class Trial:
    """A tool in a folder: its virtual environment, a HOME, and a working directory per task."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        self._peer = peer
        self._folder = folder / peer.name
        self._commands = Commands()

    def install(self) -> Result:
        """Creates the virtual environment, if it is not there yet, and describes it."""
        (self._folder / "home").mkdir(parents=True, exist_ok=True)
        requirements = self._peer.requirements or (f"./{self._copy_of_ourselves()}[{OWN_EXTRAS}]",)
        constraints = self._folder / "constraints.txt"
        constraints.write_text(f"{TORCH}\n")
        self._run(sys.executable, "-m", "venv", "venv", limit_s=INSTALL_LIMIT_S)
        options = ("--quiet", "--prefer-binary", "--constraint", "constraints.txt")
        pip = (str(self._bin / "python"), "-m", "pip", "install")
        ended = self._run(*pip, *options, *requirements, limit_s=INSTALL_LIMIT_S)
        lines = [line for line in ended.output.splitlines() if line.startswith("ERROR")]
        return {
            "peer": self._peer.name,
            "python": platform.python_version(),
            "processor": facts()["cpu"],
            "requirements": [name.replace("./sources", ".") for name in requirements],
            "install_status": ended.status,
            "install_error": self._hide("; ".join(lines)) if ended.status else "",
            "versions": self._versions(),
            "date": date.today().isoformat(),
        }

    def run(self, task: Task) -> Result:
        """Runs the script of a task in an empty directory, beside the tool's other files."""
        work = self._folder / "work" / task.name
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(SCRIPTS / self._peer.name, work)
        shutil.copytree(SCRIPTS / "common", work, dirs_exist_ok=True)
        script = script_path(self._peer, task)
        body = body_of(script.read_text(encoding="utf-8"))
        began_s = _cpu_s()
        # SIGINT is ignored where a shell has started us in the background.
        command = ("env", "--default-signal=INT", "bash", "-c", f"exec bash {script.name} 2>&1")
        try:
            ended = self._run(*command, limit_s=TASK_LIMIT_S, folder=work)
        finally:
            end_processes_of(self._folder)
        result = {
            "script": body,
            "status": ended.status,
            "wall_s": round(ended.duration_s, 1),
            "cpu_s": round(_cpu_s() - began_s, 1),
            "date": date.today().isoformat(),
            "output": self._hide(ended.stdout).splitlines(),
        }
        curve = work / "curve.csv"
        return result | ({"curves": read_curves(curve)} if curve.exists() else {})

    @property
    def _bin(self) -> Path:
        return self._folder / "venv" / "bin"

    def _copy_of_ourselves(self) -> str:
        """Copies the package, so that pip leaves no build folder in the repository."""
        copy = self._folder / "sources"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        for name in OWN_SOURCES:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, copy / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy(source, copy)
        link = copy / "border_cli" / "conf"  # of a checkout that is used without installation
        if link.is_symlink():
            link.unlink()
        return copy.name

    def _versions(self) -> Mapping[str, str]:
        folders = [str(path) for path in (self._folder / "venv" / "lib").glob("*/site-packages")]
        found = {each.name.replace("_", "-"): each.version for each in distributions(path=folders)}
        return {name: found[name] for name in self._peer.shown if name in found}

    def _run(self, *command: str, limit_s: float, folder: Path | None = None) -> Ended:
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        environment |= {
            "PATH": f"{self._bin}{os.pathsep}{os.defpath}",
            "HOME": str(self._folder / "home"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
            "TERM": "dumb",
        }
        return self._commands.run(
            command, folder=folder or self._folder, variables=environment, limit_s=limit_s
        )

    def _hide(self, text: str) -> str:
        """Removes colours, and shortens the paths of this machine."""
        text = ESCAPES.sub("", text)
        packages = [*(self._folder / "venv" / "lib").glob("*/site-packages")]
        resolved = [path.resolve() for path in packages]
        for path in (*packages, *resolved, self._folder / "work", self._folder):
            text = text.replace(str(path), "…")
        return text


def _cpu_s() -> float:
    """Returns the CPU time of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_curves(path: Path) -> dict[str, list[list[float]]]:
    """Reads rows of panel, run, env step and return; averages over equal parts of the steps."""
    with path.open(encoding="utf-8") as file:
        rows = [
            (panel, f"{panel}|{run}", float(step), float(score))
            for panel, run, step, score in csv.reader(file)
        ]
    ends: dict[str, float] = {}
    for panel, _, step, _ in rows:
        ends[panel] = max(step, ends.get(panel, 0.0))
    parts: dict[str, dict[int, list[float]]] = {}
    for panel, curve, step, score in rows:
        number = min(POINTS - 1, int(POINTS * step / ends[panel]))
        parts.setdefault(curve, {}).setdefault(number, []).append(score)
    return {
        curve: [
            [
                round((number + 0.5) * ends[curve.partition("|")[0]] / POINTS),
                round(fmean(scores), 1),
            ]
            for number, scores in sorted(points.items())
        ]
        for curve, points in parts.items()
    }
