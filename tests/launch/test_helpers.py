"""Helper processes that environments start and terminate do not outlive a run."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.support.commands import QUICK, Command

# Environments that terminate a helper as the docs of multiprocessing and subprocess recommend.
HELPERS = """
import multiprocessing, subprocess, time
from gymnasium.envs.classic_control import CartPoleEnv
class Forked(CartPoleEnv):
    def __init__(self):
        super().__init__()
        self.helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        self.helper.start()
    def close(self):
        self.helper.terminate()
        self.helper.join()
class Program(CartPoleEnv):
    def __init__(self):
        super().__init__()
        self.helper = subprocess.Popen(["sleep", {seconds!r}])
    def close(self):
        self.helper.terminate()
        self.helper.wait()
"""
SECONDS = "614.2853"  # identifies the programs started by these tests


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize("kind", ["Forked", "Program"])
def test_a_run_ends_with_the_helpers_of_its_environments(
    kind: str, backend: str, tmp_path: Path
) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS.format(seconds=SECONDS))
    more = ("trainer.eval_interval=1", "evaluator.background=true", f"actor_manager={backend}")
    with Command(tmp_path, f"env.id=helpers:{kind}", "agent=dqn", *QUICK, *more) as command:
        status, output = command.ended()
    assert status == 0, output
    processes = psutil.process_iter(["cmdline"])
    assert not [process for process in processes if SECONDS in (process.info["cmdline"] or ())]
