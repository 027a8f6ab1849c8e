"""What a measurement is worth nothing without: the machine, the versions, the load."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

PACKAGES = ("border-cli", "torch", "numpy", "gymnasium")


def one_thread_for_blas() -> None:
    """Must come before numpy is loaded; `border-train` does the same."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


def facts() -> dict[str, Any]:
    """Machine and versions, for every row."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        **{name: version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    """Name, family and model, because virtual machines hide the name."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return platform.processor()
    pairs = (line.partition(":")[::2] for line in first.splitlines())
    fields = {key.strip(): value.strip() for key, value in pairs}
    name = fields.get("model name", platform.processor())
    return f"{name} (family {fields.get('cpu family')}, model {fields.get('model')})"


def load() -> float:
    """Processes that wanted a core in the last minute; above the number of cores they queued."""
    return round(os.getloadavg()[0], 2)


def spread(values: list[float], digits: int) -> dict[str, float]:
    """Median, smallest and largest."""
    return {
        "median": round(median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }
