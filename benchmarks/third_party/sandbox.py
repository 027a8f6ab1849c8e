"""A private folder with a small virtual environment over the one that runs the trial."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path

from benchmarks.third_party.commands import Commands, Ended, end_processes_of
from benchmarks.third_party.packages import ROOT

# Passed on to the commands; nothing else of the user's environment is.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "SSL_CERT_FILE")
PIP_CONFIG = Path("~/.config/pip/pip.conf").expanduser()
COMMANDS = ("train", "eval", "env")  # modules of border_cli.cli; other checkouts may lack some
SCRIPT = """#!{python}
import sys

from border_cli.cli.{name} import command

if __name__ == "__main__":  # child processes import this file, too
    sys.exit(command())
"""
KEPT = ("numpy", "gymnasium", "torch")  # first tried with the versions that are installed
NEWEST = re.compile(r"^\S+ \((\S+)\)", re.MULTILINE)  # in the output of pip index versions
CONFLICT = re.compile(r"ResolutionImpossible|conflicting dependencies|No matching distribution")
UNUSED_S = 1.0  # a step with less time left is not begun


class Sandbox:
    """A folder with a virtual environment, a HOME and temporary files, removed with the block.

    The virtual environment sees the packages of the one that runs the trial, and new packages are
    installed into it alone. Used by one thread.
    """

    def __init__(self, commands: Commands, folder: Path, *, limit_s: float) -> None:
        """`folder` is shared by all sandboxes: it has pip's cache. All commands together may take
        `limit_s` seconds."""
        self._commands = commands
        self._ends_s = time.monotonic() + limit_s
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.work = self.folder / "work"
        self._bin = self.folder / "venv" / "bin"
        self._cache = folder / "pip-cache"

    def __enter__(self) -> Sandbox:
        for name in ("work", "home", "tmp"):
            (self.folder / name).mkdir()
        venv = ["-m", "venv", "--without-pip", str(self.folder / "venv")]
        self._run([sys.executable, *venv])
        (self.site_packages / "base.pth").write_text(
            f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        )
        for name in COMMANDS:
            if (ROOT / "border_cli" / "cli" / f"{name}.py").exists():
                path = self._bin / f"border-{name}"
                path.write_text(SCRIPT.format(python=self._bin / "python", name=name))
                path.chmod(0o755)
        return self

    def __exit__(self, *error: object) -> None:
        end_processes_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def site_packages(self) -> Path:
        (path,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        return path

    @property
    def left_s(self) -> float:
        """Seconds until the time limit."""
        return self._ends_s - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.left_s < UNUSED_S

    def has(self, command: str) -> bool:
        """Returns whether border_cli has a command such as border-env."""
        return (self._bin / command).exists()

    def run(self, command: str, *arguments: str, limit_s: float | None = None) -> Ended:
        """Runs a command of the virtual environment in the working directory."""
        return self._run([str(self._bin / command), *arguments], limit_s, PYTHONPATH=str(ROOT))

    def newest_version(self, name: str) -> tuple[str, Ended]:
        """Asks the package index for the newest version; '' if it has none for this Python."""
        ended = self._pip("index", "versions", name)
        match = NEWEST.search(ended.stdout)
        return (match[1] if match else "", ended)

    def install(self, requirements: Sequence[str]) -> Ended:
        """Installs requirements, if possible beside the installed numpy and Gymnasium, otherwise
        with others that border_cli allows; torch stays as it is."""
        ended = self._install(requirements, KEPT)
        if ended.status and CONFLICT.search(ended.output):
            again = self._install(requirements, KEPT[2:])
            return again._replace(duration_s=ended.duration_s + again.duration_s)
        return ended

    def _install(self, requirements: Sequence[str], kept: Sequence[str]) -> Ended:
        constraints = self.folder / "constraints.txt"
        needed = [line for line in requires("border-cli") or () if "extra ==" not in line]
        lines = [*needed, *(f"{name}=={installed_version(name)}" for name in kept)]
        constraints.write_text("".join(f"{line}\n" for line in lines))
        options = ("--quiet", "--prefer-binary", "--constraint", str(constraints))
        return self._pip("install", *options, *requirements)

    def _pip(self, *arguments: str) -> Ended:
        pip = [sys.executable, "-m", "pip", "--no-input", "--python", str(self._bin / "python")]
        return self._run([*pip, *arguments])

    def installed(self) -> dict[str, str]:
        """Returns the versions of the distributions in the small virtual environment by name."""
        path = [str(self.site_packages)]
        return {found.name: found.version for found in distributions(path=path)}

    def _run(self, command: Sequence[str], limit_s: float | None = None, **variables: str) -> Ended:
        left_s = self.left_s if limit_s is None else min(limit_s, self.left_s)
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        if PIP_CONFIG.exists():  # pip would look for it in HOME
            environment.setdefault("PIP_CONFIG_FILE", str(PIP_CONFIG))
        environment |= {
            "PATH": f"{self._bin}{os.pathsep}{environment.get('PATH', os.defpath)}",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PIP_CACHE_DIR": str(self._cache),
            "COLUMNS": "200",
            "TERM": "dumb",
            **variables,
        }
        return self._commands.run(command, folder=self.work, variables=environment, limit_s=left_s)


def installed_version(name: str) -> str:
    """Returns the public part of the version installed here; '' if it is not installed."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return ""
