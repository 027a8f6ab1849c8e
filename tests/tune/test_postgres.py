"""A study of Optuna in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from postgres import PostgresServer, running_postgres

Connect = Callable[[str], RDBStorage]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes storages whose connections the test closes, which Optuna leaves to chance."""
    with ExitStack() as stack:

        def _connect(url: str) -> RDBStorage:
            storage = RDBStorage(url)
            stack.callback(storage.engine.dispose)
            return storage

        yield _connect


def test_a_trial_begun_by_one_command_is_ended_by_another(
    server: PostgresServer, connect: Connect
) -> None:
    url = server.new_database()
    first, second = connect(url), connect(url)
    begun = optuna.create_study(storage=first, study_name="study").ask()
    learning_rate = begun.suggest_float("learning_rate", 1e-4, 1e-2, log=True)

    optuna.load_study(storage=second, study_name="study").tell(begun.number, 2.0)

    (trial,) = optuna.load_study(storage=first, study_name="study").trials
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 2.0)
    assert trial.params == {"learning_rate": learning_rate}


def test_a_new_database_has_no_study(server: PostgresServer, connect: Connect) -> None:
    optuna.create_study(storage=connect(server.new_database()), study_name="study")
    assert optuna.get_all_study_names(connect(server.new_database())) == []
