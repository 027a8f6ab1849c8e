"""Search spaces: parameters sampled by Optuna, the overrides for them, and invalid files."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from border_cli.config.compose import Composer
from border_cli.config.overrides import parse_overrides
from border_cli.config.search_path import user_folders
from border_cli.config.sweep import sweep_terms
from border_cli.errors import ConfigError
from border_cli.settings.base import flat
from border_cli.tune.space import Space, check_space, read_space
from tests.support.case_sampling import ALL, thinned
from tests.support.shipped_configs import CONF

optuna = pytest.importorskip("optuna")

OFFLINE = ("awac", "bc", "cql", "discrete_cql", "iql", "td3_bc")
DISCRETE = ("der", "discrete_cql", "discrete_sac", "dqn", "iqn", "qrdqn", "rainbow")
AGENTS = sorted(file.stem for file in (CONF / "agent").glob("*.yaml") if file.stem != "random")
CLASSIC = ("acrobot", "cartpole", "mountaincar", "mountaincar_continuous", "pendulum")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)


def read(folder: Path, name: str) -> Space:
    with Composer(user_folders([str(folder)])).open_files() as files:
        return read_space(files, name)


def write_space(folder: Path, text: str, name: str = "mine") -> Space:
    """Writes a search space of the user and reads it."""
    file = folder / "search" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return read(folder, name)


def space(folder: Path, entries: str) -> Space:
    """Writes a search space with these entries and reads it."""
    lines = textwrap.indent(textwrap.dedent(entries), "  ")
    return write_space(folder, f"hyperparameters:\n{lines}")


def suggest(search_space: Space, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Samples a trial with some parameters fixed; returns its parameters and distributions."""
    study = optuna.create_study()
    study.enqueue_trial(values)
    trial = study.ask()
    return search_space.suggest(trial), trial.distributions


def draw_params(search_space: Space, count: int) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [search_space.suggest(study.ask()) for _ in range(count)]


NUMBERS = [
    ("x: {low: 0.5, high: 2.0}", "x", 1.23456, "x=1.235"),
    ("x: {low: 1e-5, high: 1e-2, log: true}", "x", 0.00123456, "x=0.001235"),
    ("x: {low: 0.1, high: 0.99999}", "x", 0.99998, "x=0.99999"),
    ("x: {low: 1, high: 5}", "x", 4, "x=4"),
    ("x: {low: 10, high: 20_000, log: true}", "x", 12345, "x=12345"),
    ("x: {low: 0.9, high: 0.999, log: 1 - x}", "1 - x", 0.05, "x=0.95"),
    ("x: {low: 0.9, high: 0.999, log: 1 - x}", "1 - x", 0.00123456, "x=0.998765"),
    ("x: {low: 32, high: 512, powers_of: 2}", "log2 x", 6, "x=64"),
    ("x: {low: 0.25, high: 4, powers_of: 2}", "log2 x", -1, "x=0.5"),
    ("x: {low: 0.001, high: 100, powers_of: 10}", "log10 x", -3, "x=0.001"),
    ("x: {low: 32, high: 500, powers_of: 2}", "log2 x", 9, "x=500"),
]


@pytest.mark.parametrize(("entry", "param", "value", "override"), NUMBERS)
def test_a_number_has_a_readable_name_and_is_trained_as_it_is_written(
    entry: str, param: str, value: float, override: str, tmp_path: Path
) -> None:
    search_space = space(tmp_path, entry)
    params, _ = suggest(search_space, **{param: value})
    assert params == {param: value}
    assert search_space.overrides(params) == [override]


def test_optuna_searches_the_scale_that_a_file_names(tmp_path: Path) -> None:
    search_space = space(
        tmp_path,
        """
        a: {low: 0.9, high: 0.999, log: 1 - x}
        b: {low: 32, high: 512, powers_of: 2}
        c: {low: 1, high: 9}
        d: {choices: [[64, 64], null, true]}
        """,
    )
    _, distributions = suggest(search_space)
    assert distributions == {
        "1 - a": optuna.distributions.FloatDistribution(0.001, 0.1, log=True),
        "log2 b": optuna.distributions.IntDistribution(5, 9),
        "c": optuna.distributions.IntDistribution(1, 9),
        "d": optuna.distributions.CategoricalDistribution(("[64, 64]", "null", "true")),
    }


def test_choices_are_any_values_and_are_read_back_as_such(tmp_path: Path) -> None:
    mixed = space(tmp_path, "x: {choices: [[64, 64], null, true, 1e-3, relu, 'a, b', {a: 1}]}")
    overrides = [mixed.overrides({"x": label})[0] for label in mixed.hyperparameters["x"].ends]
    values = [override.value() for override in parse_overrides(overrides)]
    assert values == [[64, 64], None, True, 0.001, "relu", "a, b", {"a": 1}]


TARGET = """
    target:
      choices:
        hard: {agent.tau: 1.0}
        soft: {agent.target_interval: 1}
        1: {agent.tau: 0.5, agent.target_interval: 2}
    agent.target_interval: {low: 50, high: 100, when: {target: hard}}
    agent.tau: {low: 0.001, high: 0.1, when: {target: soft}}
    agent.gamma: {low: 0.9, high: 0.99, when: {target: [hard, 1]}}
"""


@pytest.mark.parametrize(
    ("label", "overrides"),
    [
        ("hard", ["agent.tau=1.0", "agent.target_interval=70", "agent.gamma=0.95"]),
        ("soft", ["agent.target_interval=1", "agent.tau=0.01"]),
        ("1", ["agent.tau=0.5", "agent.target_interval=2", "agent.gamma=0.95"]),
    ],
)
def test_a_label_sets_several_values_and_conditions_skip_hyperparameters(
    label: str, overrides: list[str], tmp_path: Path
) -> None:
    search_space = space(tmp_path, TARGET)
    numbers = {"agent.target_interval": 70, "agent.tau": 0.01, "agent.gamma": 0.95}
    params, _ = suggest(search_space, target=label, **numbers)
    assert search_space.overrides(params) == overrides


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("agent.gamma=0.95", ["target", "agent.target_interval", "agent.tau", "seed"]),
        ("agent.tau=1", ["seed"]),  # `target` also sets it, and the others depend on `target`
        ("seed=3", ["target", "agent.target_interval", "agent.tau", "agent.gamma"]),
    ],
)
def test_what_is_typed_is_not_searched_nor_what_depends_on_it(
    typed: str, left: list[str], tmp_path: Path
) -> None:
    search_space = space(tmp_path, TARGET + "    seed: {low: 1, high: 9}\n").without([typed])
    assert [*search_space.hyperparameters] == left


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("agent.epsilon=0.1", []),
        ("agent.epsilon.final=0", ["agent.epsilon.steps"]),
        ("agent.epsilon={final: 0}", ["agent.epsilon.steps", "agent.epsilon.final"]),
    ],
)
def test_parts_of_a_schedule_are_searched_unless_a_number_replaces_it(
    typed: str, left: list[str], tmp_path: Path
) -> None:
    parts = """
    agent.epsilon.steps: {low: 1_000, high: 5_000}
    agent.epsilon.final: {low: 0.01, high: 0.2}
"""
    assert [*space(tmp_path, parts).without([typed]).hyperparameters] == left


RANGE = "there must be choices, or low below high"
MALFORMED = [
    ("x: 3", "'int' object is not a mapping"),
    ("x: {low: 1, hihg: 2}", "'hyperparameters.x.hihg', did you mean hyperparameters.x.high"),
    ("x: {low: 1}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {low: 2, high: 2}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {low: 1, high: a}", "hyperparameters.x.high must be an integer or a number"),
    ("x: {low: 1, high: 2, log: yess}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {low: 0, high: 2, log: true}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {low: 0.5, high: 1, log: 1 - x}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {low: 0, high: 2, powers_of: 2}", "math domain error"),
    ("x: {low: 1, high: 2, powers_of: 1}", "float division by zero"),
    ("x: {choices: []}", f"hyperparameters.x: .*{RANGE}"),
    ("x: {choices: 3}", ".*"),
    ("x: {choices: {a: 1}}", "hyperparameters.x.choices.a"),
    ("x: {choices: [1], when: {y: 1}}\ny: {choices: [1]}", "x: when: unknown y '1'"),
    ("y: {low: 1, high: 2}\nx: {choices: [1], when: {y: 1}}", "x: when: unknown y '1'"),
    ("y: {choices: [on, off]}\nx: {choices: [1], when: {y: offf}}", "x: when: unknown y 'offf'"),
]


@pytest.mark.parametrize(("entries", "message"), MALFORMED)
def test_a_malformed_entry_is_refused_with_file_and_key(
    entries: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^search/mine\.yaml: .*{message}"):
        space(tmp_path, entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r"search/mine\.yaml: "),
        ("hyperparameters: {x: {low: 1", r"not valid YAML: .*mine\.yaml"),
        ("defaults: [dqm]", "unknown search space 'dqm', did you mean dqn"),
        ("defaults: [mine]", r"search/mine\.yaml: .*recursion"),
    ],
)
def test_a_malformed_file_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        write_space(tmp_path, text)


def test_a_file_of_the_user_comes_first_and_may_build_on_ours(tmp_path: Path) -> None:
    write_space(tmp_path, "hyperparameters: {seed: {low: 1, high: 2}}", "rainbow")
    search_space = write_space(
        tmp_path,
        """
        defaults: [iql, rainbow]
        hyperparameters:
          agent.gamma: null
          agent.tau: {choices: [0.1]}
        """,
    )
    ours = read(tmp_path, "iql").content
    del ours["agent.gamma"]
    assert [*search_space.hyperparameters] == [*ours, "seed"]
    assert search_space.content["agent.tau"] == {"choices": [0.1]}


def check(search_space: Space, *fixed: str) -> None:
    composer = Composer()
    check_space(composer, search_space, fixed, sweep_terms(composer, fixed))


CHECKED = [
    ("agent.gama: {low: 0.9, high: 0.99}", "agent.gama: unknown setting 'agent.gama'"),
    ("agent.gamma: {low: 0.9, high: 1.1}", "agent.gamma: agent.gamma must be at least 0"),
    ("replay_buffer: {choices: [uniform, prioritised]}", "replay_buffer: unknown replay_buffer"),
    ("all: {choices: {a: {agent.tau: 1.0}, b: {agent.tao: 1}}}", "all: unknown setting"),
    (
        "replay_buffer: {choices: [uniform, prioritized]}\n"
        "replay_buffer.alpha: {low: 0.2, high: 2, when: {replay_buffer: prioritized}}",
        "replay_buffer.alpha: replay_buffer.alpha must be",
    ),
    ("{}", "nothing is left to search"),
]


@pytest.mark.parametrize(("entries", "message"), CHECKED)
def test_a_key_or_a_value_is_refused_as_if_it_were_typed(
    entries: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^search/mine\.yaml: {re.escape(message)}"):
        check(space(tmp_path, entries), "agent=dqn", "env=cartpole")


def fixed_of(agent: str) -> list[str]:
    env = "cartpole" if agent in DISCRETE else "pendulum"
    offline = ["trainer=offline", "replay_buffer.dataset=my/data-v0"]
    return [f"agent={agent}", f"env={env}", *(offline if agent in OFFLINE else [])]


@pytest.mark.parametrize("agent", ["awac", "dqn"])
def test_the_ends_and_choices_of_a_shipped_space_are_accepted(agent: str, tmp_path: Path) -> None:
    check(read(tmp_path, agent), *fixed_of(agent))


@pytest.mark.parametrize("agent", AGENTS)
def test_every_end_is_used_under_its_conditions_in_few_jobs(agent: str, tmp_path: Path) -> None:
    search_space = read(tmp_path, agent)
    rows = search_space.ends_together()
    ends = [len(entry.ends) for entry in search_space.hyperparameters.values()]
    assert max(ends) <= len(rows) <= sum(ends) / 2
    for entry in search_space.hyperparameters.values():
        used = [row for row in rows if entry.param in row]
        assert {row[entry.param] for row in used} == {*entry.ends}
        assert all(row[on] in labels for row in used for on, labels in entry.when.items())


def test_ends_that_do_not_go_together_are_accepted_if_each_is_by_itself(tmp_path: Path) -> None:
    either = "{name}: {{low: 100, high: 200}}\n"
    names = ("trainer.save_interval", "trainer.save_interval_env_steps")
    search_space = space(tmp_path, "".join(either.format(name=name) for name in names))
    composer, fixed = Composer(), ["agent=dqn", "env=cartpole"]
    for row in search_space.ends_together():
        with pytest.raises(ConfigError, match=r"trainer\.save_interval"):
            composer.job([*fixed, *search_space.overrides(row)])
    check(search_space, *fixed)


@pytest.mark.slow
@pytest.mark.parametrize("agent", thinned(AGENTS, 3))
def test_whatever_is_drawn_from_a_shipped_space_composes(agent: str, tmp_path: Path) -> None:
    composer, search_space, fixed = Composer(), read(tmp_path, agent), fixed_of(agent)
    assert 6 <= len(search_space.hyperparameters) <= 12
    ends, count = search_space.ends_together(), 20 if ALL else 1
    drawn = [*thinned(ends, max(1, len(ends) - 1)), *draw_params(search_space, count)]
    with composer.open_files() as files:
        for params in drawn:
            composer.job_of(files, [*fixed, *search_space.overrides(params)])


# Their rollouts are shorter than those that minibatches of other environments need.
SHORT_ROLLOUTS = [("ppo", env) for env in ("cartpole", "mountaincar", "mountaincar_continuous")]
PAIRS = [
    (agent, env)
    for agent in AGENTS
    for env in CLASSIC
    if (CONF / "tuned" / f"{agent}_{env}.yaml").exists() and (agent, env) not in SHORT_ROLLOUTS
]


@pytest.mark.parametrize(("agent", "env"), PAIRS)
def test_tuned_values_lie_inside_the_space_of_their_agent(
    agent: str, env: str, tmp_path: Path
) -> None:
    tuned = flat(OmegaConf.to_container(OmegaConf.load(CONF / "tuned" / f"{agent}_{env}.yaml")))
    for entry in read(tmp_path, agent).hyperparameters.values():
        if entry.name in tuned and not entry.when:
            value = tuned[entry.name]
            choices = [choice[entry.name] for choice in entry.choices.values()]
            assert value in choices or entry.low <= value <= entry.high, entry.name


@pytest.mark.parametrize("typed", ["agent.learning_rate.final=0", "agent.learning_rate=0.01"])
def test_a_typed_part_of_a_schedule_fixes_the_number_in_its_place(
    tmp_path: Path, typed: str
) -> None:
    search_space = space(
        tmp_path,
        """
        agent.learning_rate: {low: 1e-4, high: 1e-2, log: true}
        agent.epsilon.final: {low: 0.01, high: 0.2}
        """,
    )
    assert [*search_space.without([typed]).hyperparameters] == ["agent.epsilon.final"]
