"""A study in its directory: creating and resuming it, and the trial that a command trains next.

Nothing is trained: the tests write the evaluations of a trial's runs instead.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from border_cli.config.compose import compose
from border_cli.errors import ConfigError, RunFailed
from border_cli.settings.run import OnError
from border_cli.tune.config import TuneConfig
from border_cli.tune.halving import Action
from border_cli.tune.runs import Training, TrialRuns
from border_cli.tune.space import Hyperparameter, Space
from border_cli.tune.store import TrialStore, open_store
from border_cli.tune.study import Trials, open_study
from border_cli.tune.trials import Study, rank_trials, read_study, read_trials
from tests.support.commands import other_process
from tests.support.written_runs import write_run

pytest.importorskip("optuna")

GAMMA = Hyperparameter(name="agent.gamma", choices={}, when={}, low=0.9, high=0.99)
SPACE = Space(file="mine.yaml", content={}, hyperparameters={"agent.gamma": GAMMA})
STUDY = Study(
    id="0123abcd",
    name="S",
    command=["border-tune", "study=S"],
    agent="dqn",
    env="cartpole",
    overrides=["agent=dqn", "env=cartpole"],
    space={"agent.gamma": {"low": 0.9, "high": 0.99}},
    seeds=2,
    score="last",
    last_evals=5,
    unit="max_env_steps",
    interval=100,
    budgets=[200, 400],  # the last of 2 evaluations counts, then the last two of 4
    trials=4,
    fresh_seeds=3,
)


def write_evaluations(folder: Path, rows: Sequence[tuple[int, float | None]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"env_steps": steps, "eval/return": value}) for steps, value in rows]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def runs_of(study: Study, root: Path) -> TrialRuns:
    unused: Any = None  # only needed to compose jobs
    return TrialRuns(
        composer=unused, terms=unused, overrides=study.overrides, study=study, root=root
    )


class Commands:
    """Commands that work on one study, and the events that they report."""

    def __init__(self, root: Path, store: TrialStore) -> None:
        self.root, self.store = root, store
        self.events: list[str] = []

    def begin(self, study: Study = STUDY, **settings: Any) -> Trials:
        """Starts another command."""
        study = open_study(self.root, study)
        config = TuneConfig(study=str(self.root), **{"risk": 0.1, **settings})
        runs = runs_of(study, self.root)
        return Trials(study, SPACE, self.store, config, runs, self.events.append)

    def train(self, trials: Trials, training: Training, score: float) -> None:
        """Writes evaluations: runs with even seeds have this score, and runs with odd seeds about
        one more. The difference varies between trials."""
        more = 1 + training.trial.number / 10
        for seed, folder in training.folders.items():
            rows = [(steps, score + seed % 2 * more) for steps in STUDY.places(training.rung)]
            write_evaluations(folder, rows)
        trials.finish_training(training)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    with open_store(f"sqlite:///{tmp_path / 'study.db'}", "study", tmp_path, begun=False) as store:
        yield Commands(tmp_path / "S", store)


def take_training(trials: Trials) -> Training:
    step = trials.take()
    assert isinstance(step, Training), step
    return step


def test_from_the_first_trial_to_the_winner(commands: Commands) -> None:
    trials = commands.begin()
    trained: list[tuple[str, int, list[int]]] = []
    while (step := trials.take()) is not Action.finish:
        assert isinstance(step, Training)
        [parent] = {folder.parent.name for folder in step.folders.values()}
        trained.append((parent, step.rung, [*step.folders]))
        commands.train(trials, step, [10.0, 40.0, 20.0, 30.0][step.trial.number])
    first = [training for training in trained if training[1] == 0]
    assert first == [(f"trial-{n:04}", 0, [0, 1]) for n in range(4)]
    assert ("trial-0001", 1, [0, 1]) in trained
    assert trained[-1] == ("trial-0001", 1, [1000, 1001, 1002])  # the winner on fresh seeds
    assert len({str(training) for training in trained}) == len(trained)  # nothing is trained twice
    trials.look()
    rows = trials.rows
    assert rows == read_trials(commands.root)
    best, worst = rows[1], rows[0]
    assert (best.status, best.scores, best.score) == ("complete", [40.0, 41.1], 40.55)
    assert (worst.status, worst.budget) == ("pruned", 200)
    assert best.command == (
        f"border-train agent=dqn env=cartpole {best.settings[0]} trainer.max_env_steps=400 seed=0"
    )
    assert "trial 1: 40.55 at 400 env steps" in commands.events


def test_another_command_waits_for_the_last_trial_that_one_trains(commands: Commands) -> None:
    only = replace(STUDY, trials=1)
    mine, theirs = commands.begin(only), commands.begin(only)
    training = take_training(mine)
    assert theirs.take() == Action.wait
    commands.train(mine, training, 5.0)
    resumed = take_training(theirs)
    assert (resumed.trial.number, resumed.rung) == (0, 1)
    commands.train(theirs, resumed, 6.0)
    winner = take_training(mine)
    assert theirs.take() == Action.finish  # the other command trains the winner
    assert "is in use by process" in commands.events[-1]
    commands.train(mine, winner, 7.0)
    assert mine.take() == Action.finish


def test_a_trial_is_taken_up_once_the_process_that_trains_it_is_gone(commands: Commands) -> None:
    trials = commands.begin()
    training = take_training(trials)
    training.lock.__exit__()
    with other_process(commands.root / "trial-0000"):
        assert take_training(trials).trial.number == 1
    resumed = take_training(trials)
    assert (resumed.trial.number, resumed.rung) == (0, 0)
    assert commands.events[-1].startswith("trial 0 is trained to 200 env steps: agent.gamma=")


def test_a_command_that_ends_between_score_and_end_of_a_trial_loses_neither(
    commands: Commands,
) -> None:
    trials = commands.begin(replace(STUDY, trials=1, fresh_seeds=0))
    commands.train(trials, take_training(trials), 5.0)
    training = take_training(trials)
    commands.train(trials, training, 6.0)
    trials.look()
    assert trials.rows[0].status == "waiting"  # until a command takes the next trial
    resumed = commands.begin(replace(STUDY, trials=1, fresh_seeds=0))
    assert resumed.take() == Action.finish
    resumed.look()
    assert (resumed.rows[0].status, resumed.rows[0].scores) == ("complete", [6.0, 7.0])


def test_a_file_system_without_locks_is_refused(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    trials = commands.begin()
    take_training(trials)
    with pytest.raises(ConfigError, match="trial-0000 is on a file system without locks"):
        trials.take()


def test_a_trial_without_a_finite_evaluation_fails_alone(commands: Commands) -> None:
    trials = commands.begin()
    training = take_training(trials)
    for folder, value in zip(training.folders.values(), (1.0, None), strict=True):
        write_evaluations(folder, [(100, value), (200, value)])
    trials.finish_training(training)
    commands.train(trials, take_training(trials), 5.0)
    trials.look()
    first, second = trials.rows
    assert (first.status, first.scores, second.status) == ("fail", [], "waiting")
    assert first.reason.endswith("seed-1 has recorded no finite eval/return")


def test_evaluations_a_few_steps_late_count_at_the_places_of_all_runs(tmp_path: Path) -> None:
    """Evaluations are interpolated: at step 300 the value is 30 + 96/200 * 20."""
    write_evaluations(tmp_path, [(104, 10.0), (204, 30.0), (300, None), (404, 50.0)])
    runs = runs_of(STUDY, tmp_path)
    assert runs.curve(tmp_path, 0) == pytest.approx([10.0, 29.2])
    assert runs.curve(tmp_path, 1) == pytest.approx([10.0, 29.2, 39.6, 49.6])


def test_the_first_trials_that_all_fail_end_the_study(commands: Commands) -> None:
    trials = commands.begin(replace(STUDY, trials=50))
    for _ in range(2):
        trials.record_failure(take_training(trials), "there is no such file")
    with pytest.raises(RunFailed, match=r"first 3 trials .*: there is no such file$"):
        trials.record_failure(take_training(trials), "there is no such file")
    assert [row.status for row in trials.rows] == ["fail"] * 3


def test_a_run_that_has_not_resumed_yet_has_not_reached_its_rung(tmp_path: Path) -> None:
    runs = runs_of(STUDY, tmp_path)
    write_run(tmp_path / "done", env_steps=204)
    assert [runs.is_done(tmp_path / "done", rung) for rung in (0, 1)] == [True, False]
    write_run(tmp_path / "stopped", status="interrupted")
    assert not runs.is_done(tmp_path / "stopped", 0)


def test_a_study_goes_on_as_it_was_begun(tmp_path: Path) -> None:
    root = tmp_path / "S"
    assert open_study(root, STUDY) == STUDY
    moved = root.rename(tmp_path / "T")
    again = replace(STUDY, id="other", name="T", command=["border-tune", "study=T"], trials=6)
    assert open_study(moved, again) == replace(STUDY, command=again.command, trials=6)
    fewer = open_study(moved, replace(again, trials=2))
    assert fewer.trials == 2  # the other trials are not trained
    assert read_study(moved).trials == 6


def test_a_journal_that_has_sqlite_remove_another_file_is_refused(tmp_path: Path) -> None:
    open_study(tmp_path, STUDY)
    (tmp_path / "study.db-journal").write_bytes(b"a page\0\0\0\0")
    open_study(tmp_path, STUDY)  # a journal left by a killed command is accepted
    tail = b"home/notes.txt" + bytes.fromhex("0000000ed9d505f920a163d7")
    (tmp_path / "study.db-journal").write_bytes(b"a page" + tail)
    with pytest.raises(ConfigError, match="names another file, which SQLite would remove"):
        open_study(tmp_path, STUDY)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"space": {}}, "space"),
        ({"overrides": ["agent=sac"], "seeds": 3}, "overrides, seeds"),
    ],
)
def test_a_study_of_another_kind_is_refused_by_what_differs(
    tmp_path: Path, other: dict[str, Any], names: str
) -> None:
    open_study(tmp_path, STUDY)
    with pytest.raises(ConfigError, match=f"was begun with different {names} "):
        open_study(tmp_path, replace(STUDY, **other))
    assert read_study(tmp_path) == STUDY


@pytest.mark.parametrize("file", ["run.json", "sweep.json"])
def test_a_directory_of_other_runs_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).touch()
    with pytest.raises(ConfigError, match="contains runs that do not belong to a study"):
        open_study(tmp_path, STUDY)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_typed_limit_in_updates_is_replaced_by_the_budget_in_env_steps(tmp_path: Path) -> None:
    """The budget was computed with the replay ratio of the command, and trials may have another."""
    typed = [*STUDY.overrides, "trainer.max_opt_steps=200"]
    runs = runs_of(replace(STUDY, overrides=typed), tmp_path)
    expected = [*STUDY.overrides, "agent.gamma=0.9", "trainer.max_env_steps=400"]
    assert runs.overrides_for(["agent.gamma=0.9"]) == expected


def test_a_run_of_a_study_does_not_stop_the_others_when_it_fails(tmp_path: Path) -> None:
    config = compose("agent=dqn", "env=cartpole", "sweep.on_error=stop")
    limited = runs_of(STUDY, tmp_path)._limit_to_rung(config, 0)
    assert limited.sweep.on_error == OnError("continue")


def test_with_fewer_trials_the_best_of_these_is_trained_and_reported(commands: Commands) -> None:
    whole = {"max_cost": 1.0, "risk": 0.0}
    trials = commands.begin(replace(STUDY, fresh_seeds=0), **whole)
    while (step := trials.take()) is not Action.finish:
        assert isinstance(step, Training)
        commands.train(trials, step, [10.0, 20.0, 30.0, 40.0][step.trial.number])
    fewer = commands.begin(replace(STUDY, trials=3), **whole)
    commands.train(fewer, take_training(fewer), 25.0)
    assert fewer.take() is Action.finish
    fewer.look()
    assert fewer.winner is not None
    assert (fewer.winner.number, rank_trials(fewer.own_rows)[0].number) == (2, 2)
    assert len(fewer.rows) == 4
