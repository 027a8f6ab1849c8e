"""The context of a measurement: machine, versions, noise."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("border-cli", "torch", "numpy", "gymnasium", "stable-baselines3")
PROC = Path("/proc")
USER_TICKS, CHILDREN_END = 11, 15  # utime, stime, cutime, cstime after the name in /proc/N/stat


def one_thread_for_blas() -> None:
    """Limits BLAS to one thread, as `border-train` does. Call before numpy is imported.

    How idle torch threads wait is torch's default; `as_border` changes it for our own runs.
    """
    os.environ.pop("GOMP_SPINCOUNT", None)  # may be inherited from a process that measures our runs
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


def facts() -> dict[str, Any]:
    """Returns machine and versions, which are part of every row."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        **{name: _version(name) for name in PACKAGES},
    }


def installed(package: str) -> bool:
    """Returns whether the package is installed; Stable-Baselines3 is an optional dependency."""
    return _version(package) is not None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def import_s(module: str) -> dict[str, float]:
    """Times the first import of a module in this process."""
    began_s = time.perf_counter()
    import_module(module)
    return {"import_s": time.perf_counter() - began_s}


def _cpu_model() -> str:
    """Returns the CPU's name, family and model; virtual machines hide the name."""
    try:
        first = (PROC / "cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    pairs = (line.partition(":")[::2] for line in first.splitlines())
    fields = {key.strip(): value.strip() for key, value in pairs}
    name = fields.get("model name", platform.processor())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"


class Others:
    """Measures how many `cores` other programs kept busy during a `with` block.

    The load average would include our own processes and lag by a minute. Doubt a result above 0.1,
    and ignore it if all programs together need more cores than the machine has.
    """

    cores = 0.0

    def __enter__(self) -> Others:
        self._began_s, self._busy_s, self._ours_s = time.perf_counter(), _busy_s(), tree_cpu_s()
        return self

    def __exit__(self, *exc: object) -> None:
        theirs_s = (_busy_s() - self._busy_s) - (tree_cpu_s() - self._ours_s)
        self.cores = max(0.0, theirs_s / (time.perf_counter() - self._began_s))


def _busy_s() -> float:
    """Returns the CPU time of the whole machine, including time stolen by its host."""
    fields = (PROC / "stat").read_text(encoding="utf-8").partition("\n")[0].split()
    user, nice, system, _, _, *rest = map(int, fields[1:9])  # without idle and iowait
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """Returns the CPU time of this process and its descendants, including ended ones.

    Takes a millisecond or more, because it reads every process in /proc.
    """
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has just ended; its time is in its parent's
            continue
        fields = stat.rpartition(")")[2].split()
        parents[int(folder.name)] = int(fields[1])
        ticks = sum(map(int, fields[USER_TICKS:CHILDREN_END]))
        seconds[int(folder.name)] = ticks / os.sysconf("SC_CLK_TCK")
    return sum(seconds[pid] for pid in seconds if _descends(pid, os.getpid(), parents))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid not in (ancestor, 0):
        pid = parents.get(pid, 0)
    return pid == ancestor
