"""Spaces of conf/search: what they ask of Optuna, what they set, and what is refused in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from shipped import CONF

from border_cli.config.compose import Composer, compose
from border_cli.config.overrides import parsed
from border_cli.config.search_path import user_folders
from border_cli.config.sweep import jobs_of, sweep_terms
from border_cli.errors import ConfigError
from border_cli.settings.base import flat
from border_cli.tune.space import Choice, Number, Space, check_space, read_space, space_of

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


def space(entries: str) -> Space:
    """A space of these lines below `hyperparameters`."""
    content = {
        "hyperparameters": OmegaConf.to_container(OmegaConf.create(textwrap.dedent(entries)))
    }
    return space_of("mine", content, "mine.yaml")


def read(name: str, *folders: Path) -> tuple[Composer, Space]:
    composer = Composer(user_folders([str(each) for each in folders]))
    with composer.opened() as files:
        return composer, read_space(files, name)


def written(folder: Path, name: str, text: str) -> None:
    file = folder / "search" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(textwrap.dedent(text), encoding="utf-8")


def asked(of: Space, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a trial has where these parameters are as given: parameters and distributions."""
    study = optuna.create_study()
    study.enqueue_trial(values)
    trial = study.ask()
    return of.suggest(trial), trial.distributions


def drawn(of: Space, count: int) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [of.suggest(study.ask()) for _ in range(count)]


NUMBERS = {
    "a float": ("x: {low: 0.5, high: 2.0}", "x", 1.23456, "x=1.235"),
    "a float on a log scale": (
        "x: {low: 1e-5, high: 1e-2, log: true}",
        "x",
        0.00123456,
        "x=0.001235",
    ),
    "a rounded end": ("x: {low: 0.1, high: 0.99999}", "x", 0.99998, "x=0.99999"),
    "steps": ("x: {low: 1.0, high: 1.1, step: 0.0125}", "x", 1.0125, "x=1.0125"),
    "steps beside binary fractions": ("x: {low: 0, high: 1, step: 0.1}", "x", 0.1 + 0.2, "x=0.3"),
    "an integer": ("x: {low: 1, high: 5}", "x", 4, "x=4"),
    "an integer on a log scale": ("x: {low: 10, high: 1000, log: true}", "x", 123, "x=123"),
    "an integer in steps": ("x: {low: 2, high: 8, step: 3}", "x", 5, "x=5"),
    "a distance to 1": ("x: {low: 0.9, high: 0.999, log: 1 - x}", "1 - x", 0.05, "x=0.95"),
    "its digits": ("x: {low: 0.9, high: 0.999, log: 1 - x}", "1 - x", 0.00123456, "x=0.998765"),
    "a power of 2": ("x: {low: 32, high: 512, powers_of: 2}", "log2 x", 6, "x=64"),
    "a power below 1": ("x: {low: 0.25, high: 4, powers_of: 2}", "log2 x", -1, "x=0.5"),
    "a power of 10": ("x: {low: 0.001, high: 100, powers_of: 10}", "log10 x", -3, "x=0.001"),
}


@pytest.mark.parametrize(("entry", "param", "value", "override"), NUMBERS.values(), ids=NUMBERS)
def test_a_number_has_a_readable_name_and_is_trained_as_it_is_written(
    entry: str, param: str, value: float, override: str
) -> None:
    found = space(entry)
    params, _ = asked(found, **{param: value})
    assert params == {param: value}
    assert found.overrides(params) == [override]


def test_optuna_searches_the_scale_that_a_file_names() -> None:
    found = space("""
        a: {low: 0.9, high: 0.999, log: 1 - x}
        b: {low: 32, high: 512, powers_of: 2}
        c: {low: 1, high: 9, step: 2}
        d: {choices: [[64, 64], null, true]}
    """)
    _, distributions = asked(found)
    assert distributions == {
        "1 - a": optuna.distributions.FloatDistribution(0.001, 0.1, log=True),
        "log2 b": optuna.distributions.IntDistribution(5, 9),
        "c": optuna.distributions.IntDistribution(1, 9, step=2),
        "d": optuna.distributions.CategoricalDistribution(("[64, 64]", "null", "true")),
    }


def test_choices_are_any_values_and_are_read_back_as_such() -> None:
    found = space("agent.x: {choices: [[64, 64], null, true, 1e-3, relu, 'a, b', {a: 1}]}")
    overrides = [found.overrides({"agent.x": each})[0] for each in found.hyperparameters[0].ends]
    values = [each.value() for each in parsed(overrides)]
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
def test_what_belongs_together_moves_together_and_conditions_skip(
    label: str, overrides: list[str]
) -> None:
    found = space(TARGET)
    given = {"agent.target_interval": 70, "agent.tau": 0.01, "agent.gamma": 0.95}
    params, _ = asked(found, target=label, **given)
    assert found.overrides(params) == overrides


def test_one_value_may_set_several_settings() -> None:
    found = space("rates: {sets: [agent.a, agent.b], low: 0.1, high: 0.3}")
    assert found.overrides({"rates": 0.2}) == ["agent.a=0.2", "agent.b=0.2"]
    found = space("sizes: {sets: [agent.a, agent.b], choices: [[8], [9]]}")
    assert found.overrides({"sizes": "[9]"}) == ["agent.a=[9]", "agent.b=[9]"]


def names(of: Space) -> list[str]:
    return [each.name for each in of.hyperparameters]


BUFFERS = """
    replay_buffer: {choices: [uniform, prioritized]}
    replay_buffer.alpha: {low: 0.2, high: 0.8, when: {replay_buffer: prioritized}}
    agent.gamma: {low: 0.9, high: 0.99}
"""


@pytest.mark.parametrize(
    ("entries", "typed", "left"),
    [
        (BUFFERS, ["agent.gamma=0.95"], ["replay_buffer", "replay_buffer.alpha"]),
        (BUFFERS, ["replay_buffer=prioritized"], ["replay_buffer.alpha", "agent.gamma"]),
        (BUFFERS, ["replay_buffer=uniform"], ["agent.gamma"]),
        (BUFFERS, ["seed=3"], ["replay_buffer", "replay_buffer.alpha", "agent.gamma"]),
        (TARGET + "    seed: {low: 1, high: 9}\n", ["agent.tau=1"], ["seed"]),
    ],
)
def test_what_is_typed_is_not_searched(entries: str, typed: list[str], left: list[str]) -> None:
    found = space(entries).without(typed)
    assert names(found) == left
    params, _ = asked(found)
    assert len(params) == len(left) or "replay_buffer" in left


def test_a_space_of_which_all_is_typed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^mine\.yaml: all of it is typed"):
        space("agent.gamma: {low: 0.9, high: 0.99}").without(["agent.gamma=0.9"])


def test_a_space_describes_itself() -> None:
    found = space("""
        agent.gamma: {low: 0.9, high: 0.999, log: 1 - x, unit: per step}
        agent.rate: {low: 1e-5, high: 1e-2, log: true}
        agent.batch_size: {low: 32, high: 512, powers_of: 2}
        replay_buffer: {choices: [uniform, prioritized]}
        replay_buffer.alpha: {low: 0.2, high: 0.8, step: 0.2, when: {replay_buffer: prioritized}}
        x: {low: 1, high: 5, when: {replay_buffer: [uniform, prioritized]}}
    """)
    assert found.described() == [
        ("agent.gamma", "0.9 to 0.999", "log of 1 - x", "per step", ""),
        ("agent.rate", "1e-05 to 0.01", "log", "", ""),
        ("agent.batch_size", "32 to 512", "powers of 2", "", ""),
        ("replay_buffer", "uniform, prioritized", "", "", ""),
        ("replay_buffer.alpha", "0.2 to 0.8", "steps of 0.2", "", "replay_buffer = prioritized"),
        ("x", "1 to 5", "linear", "", "replay_buffer = uniform or prioritized"),
    ]


MALFORMED = {
    "x: 3": r"x must be a mapping, got 3$",
    "x: {low: 1, hihg: 2}": "x: unknown key 'hihg', did you mean high",
    "x: {choices: [1], low: 1}": "x: unknown key 'low'",
    "x: {choices: {a: {b: 1}}, sets: [c]}": "x: unknown key 'sets'",
    "x: {low: 1, high: 4, powers_of: 2, log: true}": "x: unknown key 'log'",
    "x: {low: 1}": "x: low and high, or choices, must be there",
    "x: {low: 1, high: 2, sets: a}": "x: .*sets, if there, be a list",
    "x: {low: 1, high: a}": "x: low, high, .* must be numbers, got {low: 1, high: a}",
    "x: {low: true, high: 2}": "x: low, high, step and powers_of must be numbers",
    "x: {low: 2, high: 2}": "x: low must be below high",
    "x: {low: .nan, high: 2}": "x: low must be below high",
    "x: {low: 1, high: 2, log: yess}": "x: log must be true or 1 - x",
    "x: {low: 1, high: 2, log: true, step: 1}": "x: log must be true or 1 - x, without step",
    "x: {low: 0, high: 2, log: true}": "x: low must be above 0 on a log scale",
    "x: {low: 0, high: 2, powers_of: 2}": "x: low must be above 0 on a log scale",
    "x: {low: 0.5, high: 1, log: 1 - x}": "x: .*high below 1",
    "x: {low: 1, high: 2, step: 0}": "x: step must be above 0",
    "x: {low: 1, high: 2, powers_of: 1}": "x: .*powers_of above 1",
    "x: {low: 0.0, high: 1.0, step: 0.3}": "x: high must be a number of steps above low",
    "x: {low: 32, high: 500, powers_of: 2}": "x: .*both be powers",
    "x: {choices: []}": "x: choices must be a list of values, or",
    "x: {choices: 3}": "x: choices must be a list of values, or",
    "x: {choices: {a: 1}}": "x: each label must have a mapping of settings",
    "x: {choices: [1, 2], sets: a}": "x: sets must be a list",
    "x: {choices: [1], when: 3}": "x: when must be a mapping, got 3",
    "x: {choices: [1], when: {y: 1}}\ny: {choices: [1]}": "x: when: unknown earlier choice 'y'",
    "y: {low: 1, high: 2}\nx: {choices: [1], when: {y: 1}}": "x: when: unknown earlier choice 'y'",
    "y: {choices: [on, off]}\nx: {low: 1, high: 2, when: {y: offf}}": "unknown y 'offf'",
    "{}": "there are no hyperparameters",
}


@pytest.mark.parametrize(("entries", "message"), MALFORMED.items(), ids=range(len(MALFORMED)))
def test_a_malformed_entry_is_refused_with_file_and_key(entries: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^mine\.yaml: .*{message}"):
        space(entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r"mine\.yaml must be a mapping"),
        ("hyperparameter: {}", r"mine\.yaml: unknown key 'hyperparameter', did you mean hyperp"),
        ("hyperparameters: [1]", r"mine\.yaml: hyperparameters must be a mapping"),
        ("hyperparameters: {x: {low: 1, high: 0}}", r"mine\.yaml: x: low must be below high"),
        ("hyperparameters: {x: {low: 1", r"not valid YAML: .*mine\.yaml"),
        ("defaults: [dqm]", "unknown search space 'dqm', did you mean dqn"),
        ("defaults: [mine]", "unknown search space 'mine'"),
        ("hyperparameters: {agent.tao: null}", r"mine\.yaml: unknown hyperparameter 'agent.tao'"),
    ],
)
def test_a_malformed_file_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    written(tmp_path, "mine", text)
    with pytest.raises(ConfigError, match=message):
        read("mine", tmp_path)


def test_a_space_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown search space 'dqm', did you mean dqn\?"):
        read("dqm")


def test_a_file_of_the_user_comes_first_and_may_build_on_ours(tmp_path: Path) -> None:
    written(tmp_path, "rainbow", "hyperparameters: {seed: {low: 1, high: 2}}")
    written(
        tmp_path,
        "mine",
        """
        defaults: [iql, rainbow]
        hyperparameters:
          agent.gamma: null
          agent.tau: {choices: [0.1]}
        """,
    )
    _, found = read("mine", tmp_path)
    _, ours = read("iql")
    assert names(found) == [*(each for each in names(ours) if each != "agent.gamma"), "seed"]
    assert found.content["hyperparameters"]["agent.tau"] == {"choices": [0.1]}
    assert space_of("mine", found.content, found.file) == found


CHECKED = {
    "agent.gama: {low: 0.9, high: 0.99}": "agent.gama: unknown setting 'agent.gama', did you mean",
    "agent.gamma: {low: 0.9, high: 1.1}": "agent.gamma: agent.gamma must be at least 0",
    "agent.hidden: {choices: [[4], x]}": "agent.hidden: agent.hidden must be a list of integers",
    "replay_buffer: {choices: [uniform, prioritised]}": "replay_buffer: unknown replay_buffer",
    "all: {choices: {a: {agent.tau: 1.0}, b: {agent.tao: 1}}}": "all: unknown setting 'agent.tao'",
    "agent.batch_size: {low: 1, high: 4}\nx: {sets: [agent.batch_size], low: 1, high: 2}": (
        "agent.batch_size is set by two hyperparameters"
    ),
    "a: {choices: {b: {}, c: {}}}\nd: {choices: {e: {}}, when: {a: b}}\n"
    "f: {choices: {g: {}}, when: {a: c, d: e}}": "f: when a = c and d = e never holds",
    "replay_buffer: {choices: [uniform, prioritized]}\n"
    "replay_buffer.alpha: {low: 0.2, high: 2, when: {replay_buffer: prioritized}}": (
        "replay_buffer.alpha: replay_buffer.alpha must be"
    ),
}


@pytest.mark.parametrize(("entries", "message"), CHECKED.items(), ids=range(len(CHECKED)))
def test_a_key_or_a_value_is_refused_as_if_it_were_typed(entries: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^mine\.yaml: {re.escape(message)}"):
        check_space(Composer(), space(entries), ["agent=dqn", "env=cartpole"])


def test_what_is_typed_is_refused_as_such() -> None:
    found = space("agent.gamma: {low: 0.9, high: 0.99}")
    with pytest.raises(ConfigError, match=r"^unknown setting 'agent\.tao'"):
        check_space(Composer(), found, ["agent=dqn", "env=cartpole", "agent.tao=1"])


def test_a_run_has_no_search_space() -> None:
    with pytest.raises(ConfigError, match=r"^search=dqn: only border-tune has a search space"):
        compose("search=dqn", "env=cartpole")


def fixed_of(agent: str) -> list[str]:
    env = "cartpole" if agent in DISCRETE else "pendulum"
    offline = ["trainer=offline", "replay_buffer.dataset=my/data-v0"]
    return [f"agent={agent}", f"env={env}", *(offline if agent in OFFLINE else [])]


SHIPPED = [(agent, 10) for agent in ("rainbow", "redq", "td3_bc")]
ALL = [pytest.param(agent, 200, marks=pytest.mark.slow) for agent in AGENTS]


@pytest.mark.parametrize(("agent", "draws"), [*SHIPPED, *ALL])
def test_whatever_is_drawn_from_a_shipped_space_composes(agent: str, draws: int) -> None:
    composer, found = read(agent)
    assert 6 <= len(found.hyperparameters) <= 12
    fixed = fixed_of(agent)
    check_space(composer, found, fixed)
    batch = [[*fixed, *found.overrides(params)] for params in drawn(found, draws)]
    assert len(jobs_of(composer, batch, sweep_terms(composer, fixed))) == draws


PAIRS = [
    (agent, env)
    for agent in AGENTS
    for env in CLASSIC
    if (CONF / "tuned" / f"{agent}_{env}.yaml").exists()
]


@pytest.mark.parametrize(("agent", "env"), PAIRS)
def test_tuned_values_lie_inside_the_space_of_their_agent(agent: str, env: str) -> None:
    file = CONF / "tuned" / f"{agent}_{env}.yaml"
    tuned = flat(OmegaConf.to_container(OmegaConf.load(file)))
    _, found = read(agent)
    for key, value in tuned.items():
        setting = [each for each in found.hyperparameters if key in each.sets]
        assert not setting or any(inside(each, key, value) for each in setting), key


def inside(hyperparameter: Number | Choice, key: str, value: Any) -> bool:
    if isinstance(hyperparameter, Number):
        return bool(hyperparameter.low <= value <= hyperparameter.high)
    return value in [each.get(key) for each in hyperparameter.choices.values()]
