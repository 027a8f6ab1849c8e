"""Trials in Optuna's storage: sharing them between commands, sampling, and unusable storages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial

from border_cli.errors import ConfigError, MissingPackage
from border_cli.tune.config import Sampler
from border_cli.tune.space import Hyperparameter, Space
from border_cli.tune.store import CURVES, REASON, TrialStore, import_optuna, open_store
from tests.support.case_sampling import chosen

optuna = pytest.importorskip("optuna")


def space(*hyperparameters: Hyperparameter) -> Space:
    return Space(file="", content={}, hyperparameters={h.name: h for h in hyperparameters})


def number(name: str, high: float = 1.0, **when: list[str]) -> Hyperparameter:
    return Hyperparameter(name=name, choices={}, when=when, low=high / 64, high=high)


FLAT = space(number("x"), number("y"))
KIND = Hyperparameter(name="kind", choices={"plain": {}, "deep": {}}, when={})
SPACE = space(number("x"), number("y"), KIND, number("depth", 64, kind=["deep"]))
OpenStore = Callable[[], TrialStore]


@pytest.fixture
def open_study_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Opens the same study with every call, as another command would."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'study.db'}"
        yield lambda: stack.enter_context(open_store(url, "study", tmp_path, begun=False))


def add_trial(store: TrialStore, search_space: Space, sampler: Sampler) -> FrozenTrial:
    store.add(search_space, sampler)
    return store.trials()[-1]


def test_another_command_reads_a_trial_with_all_its_values_and_its_end(
    open_study_store: OpenStore,
) -> None:
    mine, theirs = open_study_store(), open_study_store()
    trials = [add_trial(mine, SPACE, Sampler.random) for _ in range(4)]
    mine.report(trials[0], 100, 2.5)
    mine.note(trials[0], CURVES, [[1.0, 4.0], [2.0, 3.0]])
    mine.end(trials[0], "pruned")
    mine.report(trials[1], 100, 2.0)
    mine.report(trials[1], 300, 1.5)
    mine.end(mine.trials()[1], "complete")
    mine.note(trials[2], REASON, "it exploded")
    mine.end(trials[2], "fail")
    loaded = theirs.trials()
    assert [trial.params for trial in loaded] == [trial.params for trial in trials]
    assert [trial.state.name for trial in loaded] == ["PRUNED", "COMPLETE", "FAIL", "RUNNING"]
    assert [trial.value for trial in loaded] == [2.5, 1.5, None, None]
    assert loaded[0].user_attrs == {CURVES: [[1.0, 4.0], [2.0, 3.0]]}
    assert loaded[2].user_attrs == {REASON: "it exploded"}


@pytest.mark.parametrize("sampler", Sampler)
def test_each_sampler_proposes_anew_from_trials_of_every_kind(
    open_study_store: OpenStore, sampler: Sampler
) -> None:
    store = open_study_store()
    for number in range(16):  # samplers draw the first ten at random
        trial = add_trial(store, SPACE, sampler)
        if number % 4:  # otherwise it is running
            store.report(trial, 100, trial.params["x"])
        state = (None, None, "pruned", "fail")[number % 4]
        if state:  # otherwise it waits at the rung
            store.end(trial, state)
    proposed = [tuple(sorted(stored.params.items())) for stored in store.trials()]
    assert len({*proposed}) == 16


@pytest.mark.parametrize("sampler", chosen(["tpe", "gp"], ["tpe"]))
def test_samplers_learn_from_trials_that_wait_at_a_rung(tmp_path: Path, sampler: str) -> None:
    """The last ten of 30 trials are closer to the best values than random trials."""

    def mean_distance(sampler: Sampler) -> float:
        url = f"sqlite:///{tmp_path / sampler.value}"
        with open_store(url, "study", tmp_path, begun=False) as store:
            distances = []
            for _ in range(30):
                trial = add_trial(store, FLAT, sampler)
                x, y = trial.params["x"], trial.params["y"]
                distances.append(((x - 0.3) ** 2 + (y - 0.8) ** 2) ** 0.5)
                store.report(trial, 100, -distances[-1])
            return sum(distances[-10:]) / 10

    assert mean_distance(Sampler(sampler)) < 0.75 * mean_distance(Sampler.random)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("nonsense", "nonsense"),
        ("mysql+pymysql://me:secret@host/db", "pymysql"),
        ("postgresql+psycopg://me:secret@/db?host=/nowhere", "/nowhere"),
        ("postgresql+psycopg://me@/db?password=secret&host=/nowhere", "/nowhere"),
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
    ],
)
def test_a_storage_that_cannot_be_used_is_refused_without_its_password(
    tmp_path: Path, url: str, what: str
) -> None:
    with pytest.raises(ConfigError, match=r"^storage=.*: .*") as refused:
        open_store(url, "study", tmp_path, begun=False).__enter__()
    assert what in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_study_that_has_begun_elsewhere_is_not_made_anew(
    open_study_store: OpenStore, tmp_path: Path
) -> None:
    open_study_store()
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with pytest.raises(ConfigError, match="has no study 'other'"):
        open_store(url, "other", tmp_path, begun=True).__enter__()


def test_without_optuna_the_pip_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingPackage, match=r'border-tune .*: pip install "border-cli\[tune\]"$'):
        import_optuna()


@pytest.mark.parametrize("version", ["2.10.1", "4.8.0", "50.0"])
def test_another_version_of_optuna_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(optuna, "__version__", version)
    with pytest.raises(MissingPackage, match=rf'not {version}\).* pip install "border-cli\[tune'):
        import_optuna()
