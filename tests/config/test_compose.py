"""Composing a RunConfig from overrides, without changing Hydra's global state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.version import VersionBase

from border_cli.agent.config import DqnConfig
from border_cli.config.compose import Composer, compose
from border_cli.config.hydra_source import either
from border_cli.config.sweep import sweep_terms
from border_cli.env.config import GymConfig
from border_cli.errors import ConfigError

Write = Callable[[str, str], Path]


def test_names_give_typed_settings() -> None:
    config = compose("agent=dqn", "env=cartpole", "device=cpu", "agent.gamma=0.5")
    assert isinstance(config.agent, DqnConfig)
    assert isinstance(config.env, GymConfig)
    assert (config.env.id, config.agent.gamma, config.device) == ("CartPole-v1", 0.5, "cpu")
    assert config.name == "dqn_cartpole"


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("recorder=none", []),
        ("recorder=[tensorboard,jsonl]", ["tensorboard", "jsonl"]),
        ("~recorder.console", ["tensorboard", "jsonl"]),
    ],
)
def test_recorders_are_a_list(override: str, names: list[str]) -> None:
    assert list(compose(override).recorder) == names


def test_free_dicts_take_keys_without_a_plus() -> None:
    config = compose(
        "env.kwargs.x=1", "env.kwargs.a.b=2", "evaluator.env.id=A-v0", "evaluator.env.kwargs.y=3"
    )
    assert config.env.kwargs == {"x": 1, "a": {"b": 2}}  # type: ignore[attr-defined]
    assert config.evaluator.env == {"id": "A-v0", "kwargs": {"y": 3}}


def test_interpolations_reach_hydra_and_other_settings() -> None:
    config = compose("seed=3", "name=s${seed}_${hydra:job.name}", "trainer.stop_evals=${seed}")
    assert (config.name, config.trainer.stop_evals) == ("s3_border-train", 3)


def test_jobs_of_a_sweep_know_their_number() -> None:
    composer = Composer()
    jobs = sweep_terms(composer, ["env=cartpole,acrobot", "seed=${hydra:job.num}"]).jobs
    assert jobs is not None
    configs = [composer.job(job, number).config for number, job in enumerate(jobs)]
    assert [(run.env.id, run.seed) for run in configs] == [("CartPole-v1", 0), ("Acrobot-v1", 1)]


def test_hydra_is_as_before_inside_another_app(folder: Path, write: Write) -> None:
    write("theirs.yaml", "seed: 1\n")
    with initialize_config_dir(str(folder), version_base="1.2"):
        before = (GlobalHydra.instance().hydra, VersionBase.instance().getbase())
        hydra_config = HydraConfig.instance().cfg
        assert compose("agent=random").seed == 0
        assert (GlobalHydra.instance().hydra, VersionBase.instance().getbase()) == before
        assert HydraConfig.instance().cfg is hydra_config
        assert hydra_compose("theirs").seed == 1


def test_a_configuration_of_the_user_may_be_the_first(folder: Path, write: Write) -> None:
    write("agent/mine.yaml", "defaults: [dqn, _self_]\ngamma: 0.5\n")
    write("my_run.yaml", "defaults: [config, override agent: mine, _self_]\nseed: 5\n")
    config = compose("env=cartpole", config_dir=str(folder), config_name="my_run")
    assert (config.seed, config.agent.gamma, config.name) == (5, 0.5, "mine_cartpole")


def test_a_given_folder_replaces_the_usual_one() -> None:
    assert either(None, "outputs/x") == "outputs/x"
    assert either("mine", "outputs/x") == "mine"
    assert either("~/mine", "x") == str(Path.home() / "mine")


def test_a_key_that_a_sweep_has_twice_is_refused_and_its_parts_are_combined() -> None:
    for typed in (("seed=1,2", "seed=3"), ("env.kwargs={a:1},{a:2}", "env.kwargs={b:1}")):
        with pytest.raises(ConfigError, match=r"a sweep takes .* once"):
            sweep_terms(Composer(), typed)
    jobs = sweep_terms(Composer(), ["env.kwargs={a:1},{a:2}", "env.kwargs.b=1,2"]).jobs
    assert jobs == [
        ["env.kwargs={a:1}", "env.kwargs.b=1"],
        ["env.kwargs={a:1}", "env.kwargs.b=2"],
        ["env.kwargs={a:2}", "env.kwargs.b=1"],
        ["env.kwargs={a:2}", "env.kwargs.b=2"],
    ]
