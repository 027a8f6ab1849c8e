"""Studies of Optuna's sweeper, whose jobs a stand-in runs: with a high discount they fail."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from border_cli.errors import ConfigError, RunFailed
from border_cli.sweep.study import keep_study

pytestmark = pytest.mark.filterwarnings("ignore")  # old and new versions warn of each other

RATE, UNITS = "agent.learning_rate=tag(log,interval(1e-4,1e-2))", "agent.hidden='[4]','[8]'"


class Killed(Exception):
    """The command ends here."""


class StandIn:
    """Runs no job; keeps their overrides."""

    def __init__(self, most: int) -> None:
        self.most = most  # jobs before the command is killed
        self.jobs: list[Sequence[str]] = []

    def launch(self, batch: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:  # noqa: ARG002
        self.jobs += batch
        if len(self.jobs) > self.most:
            raise Killed
        return [self._ended(each) for each in batch]

    def _ended(self, overrides: Sequence[str]) -> JobReturn:
        if "agent.gamma=2" in overrides:
            return JobReturn(status=JobStatus.FAILED, _return_value=RunFailed("too high"))
        return JobReturn(status=JobStatus.COMPLETED, _return_value=1.0)


def search(
    folder: Path,
    *swept: str,
    trials: int = 4,
    sampler: str = "random",
    most: int = 99,
    resumed: bool = True,
    **settings: Any,
) -> list[Sequence[str]]:
    """The overrides of the jobs that the sweeper of Optuna proposes."""
    master = searching(folder, swept or (RATE, UNITS), sampler=sampler)
    if "seed" in master.hydra.sweeper.sampler:
        master.hydra.sweeper.sampler.seed = 1
    settings = {"n_trials": trials, "direction": "maximize", "max_failure_rate": 1.0, **settings}
    master.hydra.sweeper.update(settings)
    keep_study(master, folder, resumed=resumed)
    plugin: Any = Plugins.instance().instantiate_sweeper(
        config=master, hydra_context=HydraContext(None, None), task_function=StandIn
    )
    launcher = plugin.sweeper.launcher = StandIn(most)
    with suppress(Killed):
        plugin.sweep(list(master.hydra.overrides.task))
    return launcher.jobs


def searching(folder: Path, swept: Sequence[str], *, sampler: str) -> DictConfig:
    """The part of a sweep's composition that is of interest to its sweeper."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    Plugins.instance()  # which finds the sweeper
    store = ConfigStore.instance()
    sweeper = store.load("hydra/sweeper/optuna.yaml").node.copy()
    OmegaConf.set_struct(sweeper, False)
    del sweeper["defaults"]
    sweeper.sampler = store.load(f"hydra/sweeper/sampler/{sampler}.yaml").node
    launcher = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
    hydra = {
        "launcher": launcher,
        "overrides": {"task": list(swept)},
        "sweep": {"dir": str(folder)},
    }
    master = OmegaConf.create({"hydra": hydra})
    master.hydra.sweeper = sweeper
    return master


def test_a_complete_study_gets_no_trial(tmp_path: Path) -> None:
    assert len(search(tmp_path)) == 4
    assert search(tmp_path) == []


def test_more_trials_are_others_than_before_in_spite_of_the_seed(tmp_path: Path) -> None:
    first = search(tmp_path)
    more = search(tmp_path, trials=6)
    assert len(more) == 2
    assert len({*map(tuple, first), *map(tuple, more)}) == 6


def test_interrupted_trials_come_again_in_the_same_words(tmp_path: Path) -> None:
    before = search(tmp_path, trials=5, most=2)
    assert len(before) == 4
    after = search(tmp_path, trials=5, most=0)  # and are interrupted once more
    assert after == before[2:]
    assert search(tmp_path, trials=5)[:2] == before[2:]
    assert search(tmp_path, trials=5) == []


def test_failed_trials_are_trials(tmp_path: Path) -> None:
    jobs = search(tmp_path, "agent.gamma=choice(0.9,2)", trials=8)
    assert {*map(tuple, jobs)} == {("agent.gamma=0.9",), ("agent.gamma=2",)}
    assert search(tmp_path, "agent.gamma=choice(0.9,2)", trials=8) == []


def test_a_grid_is_complete_with_its_last_point(tmp_path: Path) -> None:
    grid = ("agent.gamma=choice(0.9,0.99)", UNITS)
    assert len(search(tmp_path, *grid, trials=20, sampler="grid")) == 4
    assert search(tmp_path, *grid, trials=20, sampler="grid") == []


def test_a_study_with_another_goal_is_refused(tmp_path: Path) -> None:
    search(tmp_path)
    with pytest.raises(ConfigError, match=r"has hydra.sweeper.direction=maximize, not minimize"):
        search(tmp_path, direction="minimize")


def test_a_study_is_completed_only_where_that_was_asked_for(tmp_path: Path) -> None:
    search(tmp_path, resumed=False)
    with pytest.raises(ConfigError, match="resume=auto completes it"):
        search(tmp_path, resumed=False)


def test_a_storage_of_the_user_is_left_alone(tmp_path: Path) -> None:
    mine = {"storage": f"sqlite:///{tmp_path}/mine.db", "study_name": "mine"}
    assert len(search(tmp_path, **mine)) == 4
    assert len(search(tmp_path, **mine)) == 4
    assert not (tmp_path / "study.db").exists()


def test_other_sweepers_keep_their_settings(tmp_path: Path) -> None:
    sweeper = {"_target_": "somebody.Sweeper", "n_trials": 3, "params": None}
    master = OmegaConf.create({"hydra": {"sweeper": sweeper}})
    keep_study(master, tmp_path, resumed=True)
    assert master.hydra.sweeper == sweeper
