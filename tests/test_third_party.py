"""The trial of third-party packages: the choice of an agent, outcomes, comparisons, the page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.third_party.commands import Commands, end_processes_of
from benchmarks.third_party.find_ids import modules_below
from benchmarks.third_party.packages import (
    PACKAGES,
    RESULTS,
    hide_paths,
    read_packages,
    read_results,
)
from benchmarks.third_party.report import PAGE, code, escape, page, row_of
from benchmarks.third_party.verdict import (
    BEST,
    EQUAL,
    FAILS,
    NO_ENV,
    NO_IMPORT,
    NO_INSTALL,
    NOT_CREATED,
    REFUSED,
    TIME_LIMIT,
    TRAINS,
    UNSEEDED,
    choose_agent,
    compare_scores,
    extra_settings,
    has_traceback,
    in_order,
    last_line,
    outcome_of,
    reason_of,
    suitability,
    suspicions,
)


def facts(**changes: Any) -> dict[str, Any]:
    plain = {"action_kind": "Discrete", "bounded": False, "pictures_in_dict": False}
    return {**plain, "nested": False, "num_rewards": 1, **changes}


@pytest.mark.parametrize(
    ("changes", "agent"),
    [
        ({}, "dqn"),
        ({"action_kind": "Box", "bounded": True}, "sac"),
        ({"action_kind": "Box"}, "ppo"),
        ({"action_kind": "MultiDiscrete"}, "ppo"),
        ({"action_kind": "MultiBinary"}, "ppo"),
        ({"pictures_in_dict": True}, "ppo"),
    ],
)
def test_the_agent_is_one_that_takes_the_spaces(changes: dict[str, Any], agent: str) -> None:
    assert choose_agent(facts(**changes)) == agent


def test_nested_observations_are_flattened_and_vector_rewards_summed() -> None:
    assert extra_settings(facts()) == []
    assert extra_settings(facts(nested=True, num_rewards=3)) == [
        "env.wrappers=[FlattenObservation]",
        "env.reward_weights=[1,1,1]",
    ]


def test_single_agents_are_tried_before_several_and_ids_before_classes() -> None:
    ids = [{"id": "Multi-v0", "module": "pack"}, {"id": "Maze-v0", "module": "pack"}]
    plugin = {"id": "Plugin-v0", "module": ""}
    names = in_order([*ids, plugin, ids[1]], ["pack.envs:Maze"])
    assert names == ["pack:Maze-v0", "Plugin-v0", "pack.envs:Maze", "pack:Multi-v0"]


@pytest.mark.parametrize(
    ("output", "last"),
    [
        ("[08:39:59] error: actor 0: bad\nrun directory  run\nnext  border-train", "actor 0: bad"),
        ("border-train: env.id=A is unknown", "env.id=A is unknown"),
        ("ERROR: No matching distribution\n\n[notice] a new pip", "No matching distribution"),
        ("Traceback …\n  File x\ngym.error.Error: no\n", "gym.error.Error: no"),
        ("only this", "only this"),
        ("", ""),
    ],
)
def test_the_last_error_of_an_output_is_shown(output: str, last: str) -> None:
    assert last_line(output) == last


def step(outcome: str, message: str = "", *, traceback: bool = False) -> dict[str, Any]:
    return {"outcome": outcome, "last_line": message, "traceback": traceback}


def result(*, scores: str = "", found: dict[str, Any] | None = None, **steps: Any) -> Any:
    base = {"package": "pack", "version": "1.0", "python": "3.11", "id": "", "command": ""}
    return base | {"steps": steps, "found": found or {}, "scores": scores}


PASSED = step("passes")
ENDED = [  # result, outcome, reason
    (result(install=PASSED, find=PASSED, train=step(TRAINS), scores="equal"), TRAINS, ""),
    (result(install=PASSED, train=step(TRAINS), scores="differ"), TRAINS, "differ"),
    (result(install=PASSED, train=step(REFUSED, "env.id=A: no")), REFUSED, "env.id=A: no"),
    (
        result(install=PASSED, train=step(FAILS, "pygame.error: No available video device")),
        FAILS,
        "needs a display: pygame.error: No available video device",
    ),
    (result(install=step("fails", "No wheel")), NO_INSTALL, "No wheel"),
    (
        result(install=step("fails", "ResolutionImpossible: for help visit")),
        NO_INSTALL,
        "its requirements and border_cli's have no version in common",
    ),
    (result(install=step(TIME_LIMIT)), TIME_LIMIT, "time limit during: installation"),
    (result(install=PASSED, train=step(TIME_LIMIT)), TIME_LIMIT, "time limit during: border-train"),
    (
        result(install=PASSED, find=PASSED, found={"errors": {"a": "ImportError: no gym"}}),
        NO_IMPORT,
        "ImportError: no gym",
    ),
    (
        result(install=PASSED, find=PASSED, found={"errors": {"a": "b"}, "old_ids": ["A-v0"]}),
        NO_ENV,
        "uses Gym, the predecessor of Gymnasium",
    ),
    (result(install=PASSED, find=PASSED), NO_ENV, "none found"),
    (
        result(install=PASSED, create=step("fails", "TypeError: 1 required positional argument")),
        NOT_CREATED,
        "needs arguments: TypeError: 1 required positional argument",
    ),
]


@pytest.mark.parametrize(("ended", "outcome", "reason"), ENDED)
def test_every_end_has_an_outcome_and_a_reason(ended: Any, outcome: str, reason: str) -> None:
    assert outcome_of(ended) == outcome
    assert reason_of(ended) == reason


SCORES, OTHERS = [[1.0, 10], [2.0, 20]], [[1.0, 10], [2.5, 20]]


@pytest.mark.parametrize(
    ("loops", "verdict"),
    [
        ({}, ""),
        ({"reused": SCORES}, "equal"),
        ({"reused": OTHERS}, "differ"),
        ({"reused": OTHERS, "again": SCORES}, "the environment does not repeat with one seed"),
        (
            {"reused": OTHERS, "again": OTHERS, "fresh": SCORES},
            "equal with a new environment for each episode",
        ),
        (
            {"reused": OTHERS, "again": OTHERS, "fresh": OTHERS, "beside": SCORES},
            "equal with episodes side by side",
        ),
    ],
)
def test_scores_are_equal_only_to_the_bit(loops: dict[str, Any], verdict: str) -> None:
    assert compare_scores(SCORES, loops) == verdict


def test_scores_may_differ_where_check_env_finds_that_seeds_are_not_followed() -> None:
    check = "AssertionError: Deterministic step observations are not equivalent for the same seed"
    assert compare_scores(SCORES, {"reused": OTHERS}, check) == UNSEEDED
    assert compare_scores(SCORES, {"reused": SCORES}, check) == EQUAL


def test_an_environment_that_fails_by_itself_is_no_suspicion() -> None:
    broken = {"random_steps": "ValueError: a sequence"}
    ended = result(train=step(FAILS, "step raised ValueError")) | {"spaces": broken}
    assert reason_of(ended) == "fails without border_cli, too: ValueError: a sequence"
    assert suspicions(ended) == []


def test_a_traceback_that_python_ignored_is_no_failure() -> None:
    assert has_traceback("a\nTraceback (most recent call last):\n  File x")
    ignored = "Exception ignored in: <function A.__del__>\nTraceback (most recent call last):"
    assert not has_traceback(ignored)


def test_a_supported_action_counts_less_than_check_env() -> None:
    passing, failing = {"check_env": "passes"}, {"check_env": "AssertionError"}
    ranked = [
        suitability(facts(**passing)),
        suitability(facts(**passing, action_kind="Tuple")),
        suitability(facts(**failing)),
        suitability(facts(**failing, action_kind="Text")),
    ]
    assert ranked == [BEST, 2, 1, 0]


def test_what_border_cli_may_do_wrong_is_listed() -> None:
    good = result(install=PASSED, check_env=PASSED, border_env=step(TRAINS), train=step(TRAINS))
    assert suspicions(good) == []
    refused = result(check_env=PASSED, border_env=step(TRAINS), train=step(REFUSED))
    assert suspicions(refused) == [
        "refused, though it passes check_env",
        "border-env and border-train disagree",
    ]
    failing = result(train=step(FAILS, traceback=True))
    assert suspicions(failing) == ["border-train prints a traceback", "border-train fails"]


def test_submodules_are_listed_without_an_import(tmp_path: Path) -> None:
    for name in ("envs/__init__.py", "envs/maze.py", "tests/test_maze.py", "tests/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise RuntimeError('imported')")
    assert [*modules_below("pack.", [str(tmp_path)])] == ["pack.envs", "pack.envs.maze"]


def test_a_command_past_its_limit_ends_with_its_children(tmp_path: Path) -> None:
    text = "import subprocess; print('begun', flush=True); subprocess.run(['/bin/sleep', '600'])"
    ended = Commands().run(
        [sys.executable, "-S", "-c", text], folder=tmp_path, variables={}, limit_s=0.3
    )
    assert ended.status is None
    assert ended.duration_s < 5.0


def test_a_process_that_leaves_its_group_is_ended_with_the_sandbox(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    command = ["/bin/sh", "-c", "setsid /bin/sleep 600 & echo $!"]
    ended = Commands().run(command, folder=tmp_path, variables=variables, limit_s=10)
    process = psutil.Process(int(ended.stdout))
    end_processes_of(tmp_path)
    process.wait(5)  # raises TimeoutExpired while it is alive


def test_a_cell_of_the_page_has_no_bars_of_its_own() -> None:
    assert escape("a|b <c> d_e\n[f]") == r"a\|b \<c\> d\_e \[f\]"
    assert code("a|`b`") == r"`a\|'b'`"
    ended = result(install=step("fails", "x|y"))
    assert row_of(ended) == ["pack 1.0", "–", "–", "–", NO_INSTALL, "–", r"x\|y"]


def test_the_results_are_of_packages_in_the_list() -> None:
    names = {path.stem for path in RESULTS.glob("*.json")}
    assert names <= set(read_packages())
    assert len(read_packages()) == len(PACKAGES.read_text(encoding="utf-8").splitlines()) - 1


def test_the_page_of_environments_is_that_of_the_results() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(read_results()), "run: python -m benchmarks.third_party --report"


def test_results_hold_no_paths_of_the_machine() -> None:
    said = (
        '"File /home/me/venv/lib/python3.11/site-packages/torch/a.py, ran /tmp/x/y.py, file:///i/b"'
    )
    assert hide_paths(said) == '"File …/site-packages/torch/a.py, ran …, (index)"'
    assert hide_paths("3/4 of a/tmp/b") == "3/4 of a/tmp/b"
    assert hide_paths(r"a\n/tmp/b/site-packages/c") == r"a\n…/site-packages/c"
