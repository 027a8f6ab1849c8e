"""The table of results: its rows compose, stale cells are detected, and bars are judged."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.golden import differing_cases
from benchmarks.results import report
from benchmarks.results.__main__ import describe_stale
from benchmarks.results.cells import Content, changes, finished, stale_reasons
from benchmarks.results.children import Children, Failed, Stopped
from benchmarks.results.judging import Difference, difference, verdict
from benchmarks.results.kinds import Bar, Cell, Peer, Recording, Run
from benchmarks.results.rows import ROWS
from benchmarks.results.settings import UNKNOWN, Setting, differences, settings_of, values
from benchmarks.results.versions import names_of, raised_agents, read_versions, versions_of
from benchmarks.results.work import make_all, source_of
from border_cli.registry import AGENTS, register_builtin
from tests.support.case_sampling import sampled


def test_what_rows_refer_to_is_there() -> None:
    for row in ROWS.values():
        source = source_of(Cell(row, 0))
        if isinstance(row, Recording):
            assert source
            assert isinstance(source.row, Run)
        if isinstance(row, Peer):
            assert isinstance(ROWS[row.of], Run)
        if isinstance(row, Run):
            references = (row.bar.above, row.bar.near, row.bar.not_below)
            assert {name for name in references if name} <= ROWS.keys()


def test_a_new_setting_at_its_default_makes_no_cell_stale() -> None:
    then = {"agent.gamma": 0.9, "agent.gone": 1}
    now = {
        "agent.gamma": Setting(0.95, 0.99),
        "agent.dueling": Setting(False, False),
        "agent.noisy": Setting(True, False),
        "env.id": Setting("A-v0", UNKNOWN),
    }
    assert differences({"agent.gamma": 0.95}, {"agent.gamma": Setting(0.95, 0.99)}) == []
    assert differences(then, now) == [
        "agent.gamma: 0.9 -> 0.95",
        "agent.gone is gone",
        "agent.noisy=True is new",
        "env.id=A-v0 is new",
    ]


def test_another_name_for_the_same_makes_no_cell_stale() -> None:
    then = {"data.run.agent.num_threads": 1, "evaluator.background": False}
    now = {"data.run.agent.num_threads": Setting(None, None)}
    same = {"evaluator.background": Setting(None, None)}
    assert differences(then, now | same) == []
    more = {"evaluator.background": Setting(True, None)}
    assert differences(then, now | more) == ["evaluator.background: False -> True"]


def test_trainer_sync_always_stepped_its_actors_itself() -> None:
    then = {"trainer": "SyncConfig", "actor_manager": "ThreadConfig"}
    then["actor_manager.join_timeout_s"] = "5.0"
    now = {"trainer": Setting("SyncConfig", UNKNOWN)}
    now["actor_manager"] = Setting("SerialConfig", UNKNOWN)
    assert differences(then, now) == []
    assert differences(then | {"trainer": "AsyncConfig"}, now) != []


EARLIER = {"ppo": ["the value loss is halved"]}
LATER = {"ppo": [*EARLIER["ppo"], "advantages are clipped"], "dqn": ["targets are clipped"]}


def cell_made_with(versions: dict[str, list[str]]) -> Content:
    row = ROWS["ppo_cartpole"]
    return {"settings": values(settings_of(row)), "versions": versions_of(row, versions)}


def test_a_refactoring_makes_no_cell_stale() -> None:
    row = ROWS["ppo_cartpole"]
    assert stale_reasons(row, cell_made_with(EARLIER), settings_of(row), EARLIER) == []
    only_others = {**EARLIER, "dqn": LATER["dqn"], "ppo_acrobot": ["another time limit"]}
    assert stale_reasons(row, cell_made_with(EARLIER), settings_of(row), only_others) == []


def test_a_raised_version_makes_a_cell_stale_and_is_its_reason() -> None:
    row = ROWS["ppo_cartpole"]
    settings = settings_of(row)
    clipped = "version 3 of ppo: advantages are clipped"
    assert stale_reasons(row, cell_made_with(EARLIER), settings, LATER) == [clipped]
    without_versions = {"settings": values(settings)}
    halved = "version 2 of ppo: the value loss is halved"
    assert stale_reasons(row, without_versions, settings, LATER) == [halved, clipped]
    of_row = {**EARLIER, "ppo_cartpole": ["another time limit"]}
    assert stale_reasons(row, cell_made_with(EARLIER), settings, of_row) == [
        "version 2 of ppo_cartpole: another time limit"
    ]
    assert stale_reasons(row, cell_made_with(LATER), settings, EARLIER) == [
        "made with version 3 of ppo, which is now 2"
    ]


def test_another_effective_setting_makes_a_cell_stale() -> None:
    row = ROWS["ppo_cartpole"]
    settings = settings_of(row) | {"agent.gamma": Setting(0.5, 0.99)}
    assert stale_reasons(row, cell_made_with(EARLIER), settings, EARLIER) == [
        "agent.gamma: 0.98 -> 0.5"
    ]


def test_the_versions_of_its_data_count_for_a_row() -> None:
    assert names_of(ROWS["bc_cartpole_expert"]) == {
        *("bc", "bc_cartpole_expert", "cartpole_expert", "dqn", "dqn_cartpole_behaviour")
    }
    assert names_of(ROWS["ppo_cartpole_sb3"]) == {"ppo_cartpole_sb3"}


def test_versions_are_those_of_agents_and_rows_and_say_why() -> None:
    register_builtin()
    agents = {name for entry in AGENTS for name in (entry.name, *entry.presets)}
    for name, reasons in read_versions().items():
        assert name in agents | ROWS.keys()
        assert reasons
        assert all(reason and "\n" not in reason for reason in reasons)


def test_stale_seeds_with_the_same_reasons_are_listed_together() -> None:
    many = [f"agent.a{number}: 0 -> 1" for number in range(5)]
    assert describe_stale({0: ["a"], 1: many, 2: ["a"]}) == [
        "stale [0, 2]: a",
        "stale [1]: agent.a0: 0 -> 1; agent.a1: 0 -> 1; agent.a2: 0 -> 1, and 2 more",
    ]
    assert describe_stale({}) == []


def test_agents_with_other_digests_are_found() -> None:
    then = {name: {"weights": "a"} for name in ("dqn", "dqn_c51", "ppo", "bc_offline", "gone")}
    now = {**then, "dqn_c51": {"weights": "b"}, "new": {"weights": "c"}}
    assert differing_cases(then, now) == {"dqn": ["dqn_c51"]}
    now["bc_offline"] = {"weights": "b"}
    assert differing_cases(then, now) == {"dqn": ["dqn_c51"], "bc": ["bc_offline"]}


def test_learning_from_other_data_is_no_change_of_an_agent() -> None:
    then = {name: {"weights": "a"} for name in ("sac", "bc_offline", "dqn_offline_discrete")}
    now = {name: {"weights": "b"} for name in then}
    assert differing_cases(then, now) == {"sac": ["sac"], "dqn": ["dqn_offline_discrete"]}


def test_an_agent_is_raised_by_a_line_of_its_own_or_of_one_of_its_rows() -> None:
    assert raised_agents(EARLIER, LATER) == {"ppo", "dqn"}
    assert raised_agents(LATER, LATER) == set()
    assert raised_agents({}, {"td3_bc_pendulum_mixed": ["a"], "cartpole_expert": ["b"]}) == {
        "td3_bc"
    }


@pytest.mark.parametrize("name", sampled([*ROWS], every=12))
def test_a_row_composes_and_is_marked_where_its_settings_or_versions_have_changed(
    name: str,
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "inside" / "results.md").read_text(
        encoding="utf-8"
    )
    row = ROWS[name]
    assert settings_of(row)
    stale = any(changes(Cell(row, seed)) for seed in finished(row))
    assert f"| {name}{'' if stale else ' †'} |" not in page


def test_the_page_is_what_report_writes_from_the_cells() -> None:
    page = report.page({name: finished(row) for name, row in ROWS.items()})
    written = report.PAGE.read_text(encoding="utf-8")
    assert written.replace(" † |", " |") == page, "run: python -m benchmarks.results --report"


def test_a_stale_row_is_marked_in_every_table() -> None:
    page = "\n| a |\n| aa |\n\n| a | b |\n"
    assert report.mark(page, ["a"]) == "\n| a † |\n| aa |\n\n| a † | b |\n"


@pytest.mark.parametrize(
    ("ours", "low", "high"),
    [  # k of n resampled values are large: with probability binomial(n, 1/n)
        ([0.0, 0.0, 3.0], 0.0, 3.0),  # 3 of 3: 3.7 %, more than 2.5 %
        ([0.0, 0.0, 0.0, 0.0, 5.0], 0.0, 3.0),  # 3 or more: 5.8 %, 4 or more: 0.7 %
    ],
)
def test_the_interval_of_a_difference_covers_95_percent(
    ours: list[float], low: float, high: float
) -> None:
    rows = [
        {seed: {"last": {"mean": value}} for seed, value in enumerate(values)}
        for values in (ours, [0.0])
    ]
    result = difference(*rows, (0.0, 100.0))
    assert result == pytest.approx(Difference(1.0, low, high))


def cells(*means: float, **more: Any) -> dict[int, Any]:
    models = ({"best": {"mean": mean}, "last": {"mean": mean - 10}} for mean in means)
    return {seed: {**model, **more} for seed, model in enumerate(models)}


@pytest.mark.parametrize(
    ("bar", "met"),
    [
        (Bar(mean=480), True),
        (Bar(mean=480, every_seed=471), False),
        (Bar(above="other"), False),
        (Bar(above="lower"), True),
        (Bar(near="recorded"), True),
        (Bar(near="better"), False),
        (Bar(not_below="other"), True),
        (Bar(not_below="far"), False),
        (Bar(not_below="nobody"), None),
        (Bar(), None),
    ],
)
def test_a_bar_is_reached_or_not(bar: Bar, met: bool | None) -> None:
    done = {
        "row": cells(470.0, 480.0, 490.0),  # mean 480, standard error 5.8
        "other": cells(
            480.0, 490.0, 500.0
        ),  # 10 above; twice the standard error of the difference is 16.3
        "lower": cells(479.0, 479.0, 479.0),
        "far": cells(500.0, 500.0, 500.0),  # 20 above; twice the standard error is 11.5
        "recorded": {0: {"recorded": {"mean": 505.0}}},  # minus 5 %: 479.75
        "better": {0: {"recorded": {"mean": 506.0}}},  # minus 5 %: 480.7
    }
    assert verdict("row", bar, 3, done).met is met


def test_a_bar_of_success_is_held_against_the_mean_share_of_goals() -> None:
    done = {"row": {i: {"best": {"mean": 0, "success": share}} for i, share in enumerate((0.8, 1))}}
    assert verdict("row", Bar(success=0.9), 2, done).met is True
    assert verdict("row", Bar(success=0.95), 2, done).met is False
    assert verdict("row", Bar(success=0.9), 2, {"row": cells(0, 0)}).met is None


def test_the_last_models_are_compared_where_they_count() -> None:
    done = {"row": cells(480.0), "other": {0: {"best": {"mean": 490.0}, "last": {"mean": -20.0}}}}
    assert verdict("row", Bar(above="other"), 1, done).met is False
    assert verdict("row", Bar(above="other"), 1, done, model="last").met is True  # -10


@pytest.mark.parametrize("mean", [0.0, 2.0])
def test_a_bar_is_undecided_until_every_seed_is_done(mean: float) -> None:
    assert verdict("row", Bar(mean=1), 5, {"row": cells(mean)}).met is None


@dataclass
class Bench:
    """A fake that records the cells it is asked to make, and fails at one of them."""

    fails: str = ""
    jobs: int = 2
    made: list[str] = field(default_factory=list)
    children: Children = field(default_factory=Children)

    def make(self, cell: Cell) -> dict[str, Any]:
        if cell.row.name == self.fails:
            raise Failed("exit status 1")
        self.made.append(cell.row.name)
        return {"best": {"mean": 0.0}, "wall_s": 0.0}


CHAIN = ["dqn_cartpole_behaviour", "cartpole_expert", "bc_cartpole_expert"]


def test_a_cell_waits_for_what_it_needs() -> None:
    bench = Bench()
    plan = [Cell(ROWS[name], 0) for name in reversed(CHAIN)]
    assert make_all(plan, bench) == []
    assert bench.made == CHAIN


def test_what_needs_a_failed_cell_is_not_made_and_the_others_are() -> None:
    bench = Bench(fails=CHAIN[0])
    plan = [Cell(ROWS[name], 0) for name in [*CHAIN, "dqn_acrobot"]]
    failed = make_all(plan, bench)
    assert sorted(cell.row.name for cell in failed) == sorted(CHAIN)
    assert bench.made == ["dqn_acrobot"]


def run(children: Children, folder: Path, *command: str) -> str:
    return children.run(command, folder=folder, log=folder / "log", variables={}).output


def test_a_command_that_fails_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"exit status 3:\n(.*\n)*  its last words"):
        run(Children(), tmp_path, "/bin/sh", "-c", "echo its last words >&2; exit 3")
    assert run(Children(), tmp_path, "/bin/sh", "-c", "echo an answer") == "an answer\n"


def test_stopping_ends_the_commands_that_run_and_starts_no_more(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    command = ("/bin/sh", "-c", "echo >begun; exec /bin/sleep 600")
    for _ in range(100):  # where two threads reap the process, some of the tries fail
        children = Children()
        with ThreadPoolExecutor() as threads:
            ended = threads.submit(run, children, tmp_path, *command)
            (tmp_path / "begun").read_text()  # blocks until the command has started
            children.stop()
            with pytest.raises(Stopped):
                ended.result(30)
        with pytest.raises(Stopped):
            run(children, tmp_path, "/bin/sh", "-c", "echo too late")
