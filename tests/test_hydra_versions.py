"""Commands with the oldest and the newest Hydra that pyproject.toml allows.

A virtual environment per version contains Hydra, OmegaConf and the Optuna sweeper. All other
packages, including border_cli, come from the environment that runs the tests. Since pip installs
Hydra 1.3 there, only 1.4 is tried, or with EVERY=1 both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.case_sampling import thinned, weekly
from tests.support.commands import QUICK

ROOT = Path(__file__).parents[1]
PIP = ("--quiet", "--no-compile", "--disable-pip-version-check", "--retries=1")  # imports compile
UNREACHABLE = "(from versions: none)"  # printed by pip without a package index
PACKAGES = {
    "1.4": ("--pre", "hydra-core>=1.4.0rc3,<1.5", "hydra-optuna-sweeper>=1.4.0rc3,<1.5"),
    "1.3": ("hydra-core==1.3.8", "omegaconf<2.4", "hydra-optuna-sweeper==1.3.*", "sqlalchemy<2"),
}

pytestmark = [pytest.mark.slow, pytest.mark.long]

SEARCH = (
    *("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.direction=maximize"),
    *("agent.learning_rate=interval(1e-4,1e-2)", "hydra/launcher=basic", "run_dir=optuna"),
)


class Environment:
    """A virtual environment on top of the current one, and a working directory."""

    def __init__(self, folder: Path, packages: Sequence[str]) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"
        builder = venv.EnvBuilder(symlinks=True)
        builder.create(folder / "venv")
        paths = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
        behind = Path(sysconfig.get_path("purelib", vars=paths)) / "zz_behind.pth"
        here = sysconfig.get_path("purelib")
        behind.write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
        pip = (sys.executable, "-m", "pip", f"--python={self.python}", "install", *PIP)
        installed = self._run([*pip, *packages])
        if UNREACHABLE in installed.stderr:
            pytest.skip("pip reaches no index")
        assert installed.returncode == 0, installed.stderr

    def train(self, *argv: str, status: int = 0) -> str:
        """Runs `border-train` and returns its output."""
        process = self._run([str(self.python), "-m", "border_cli", *argv])
        output = process.stdout + process.stderr
        assert process.returncode == status, output
        assert "Traceback" not in output
        return output

    def evaluate(self, program: str) -> str:
        """Runs a Python program and returns its output."""
        process = self._run([str(self.python), "-c", program])
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    def test(self, folder: str, *, only: str) -> str:
        """Runs pytest on the tests in a folder whose names contain `only`; returns its output."""
        configured = (f"--rootdir={ROOT}", f"-c{ROOT}/pyproject.toml", "-p", "no:cacheprovider")
        chosen = ("-m", "", "-k", only, str(ROOT / folder))
        return self._run([str(self.python), "-m", "pytest", "-q", *configured, *chosen]).stdout

    def jobs(self, sweep: str) -> list[dict[str, object]]:
        """Returns `run.json` of all jobs of a sweep."""
        return [json.loads(path.read_bytes()) for path in (self.folder / sweep).glob("*/run.json")]

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module", params=thinned([*PACKAGES], 2))
def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("hydra"), PACKAGES[request.param])


def test_the_versions_are_those_of_the_environment(env: Environment) -> None:
    versions = env.evaluate("import hydra, omegaconf as o; print(hydra.__version__, o.__version__)")
    hydra, omega = versions.split()
    assert (hydra, omega[:4]) == ("1.3.8", "2.3.") or (hydra[:4], omega[:4]) == ("1.4.", "2.4.")


def test_settings_are_composed_or_refused(env: Environment) -> None:
    assert "gamma: 0.9\n" in env.train("env=cartpole", "agent.gamma=0.9", "--cfg", "job")
    output = env.train("env=cartpole", "agent.gama=0.9", status=2)
    assert "unknown setting 'agent.gama', did you mean agent.gamma?" in output
    program = "import border_cli as b; print(b.compose('env=cartpole', 'agent.gamma=0.9').agent)"
    assert "gamma=0.9" in env.evaluate(program)


@pytest.mark.parametrize("launcher", thinned(["processes", "basic"], 2))
def test_a_sweep_ends(env: Environment, launcher: str) -> None:
    typed = ("agent=dqn", "env=cartpole", *QUICK, "seed=1,2", f"run_dir={launcher}")
    env.train("-m", *typed, f"hydra/launcher={launcher}", "quiet=true")
    assert [facts["status"] for facts in env.jobs(launcher)] == ["done", "done"]


def test_a_run_is_resumed(env: Environment) -> None:
    env.train("agent=dqn", "env=cartpole", *QUICK, "run_dir=runs/run", "quiet=true")
    env.train("resume=runs/run", "trainer.max_opt_steps=4", "quiet=true")
    (facts,) = env.jobs("runs")
    assert (facts["status"], facts["opt_steps"]) == ("done", 4)


def test_a_search_with_a_seed_runs_nothing_twice(env: Environment) -> None:
    typed = ("-m", "agent=dqn", "env=cartpole", *QUICK, *SEARCH, "hydra.sweeper.sampler.seed=1")
    env.train(*typed, "quiet=true")
    assert [facts["status"] for facts in env.jobs("optuna")] == ["done"] * 2
    env.train(*typed, "quiet=true", "resume=auto")
    assert len(env.jobs("optuna")) == 2


@weekly
def test_a_study_whose_jobs_have_all_failed_ends_with_their_table(env: Environment) -> None:
    typed = ("-m", "agent=dqn", "env=cartpole", *QUICK, *SEARCH, "run_dir=failing")
    output = env.train(*typed, "agent.gamma=interval(1.5,2)", status=1)
    assert "0 of 2 jobs done" in output


@weekly
def test_what_is_promised_of_studies_holds_with_the_optuna_of_the_environment(
    env: Environment,
) -> None:
    output = env.test("tests/sweep", only="study")
    assert " passed" in output, output
    assert not any(word in output for word in ("failed", "error", "skipped")), output
