"""From overrides to a RunConfig, without a trace in Hydra."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.version import VersionBase
from omegaconf import OmegaConf

from border_cli.agent.config import DqnConfig, RandomConfig
from border_cli.config.compose import Composer, compose
from border_cli.core.config import Device
from border_cli.core.errors import ConfigError
from border_cli.env.config import GymConfig
from border_cli.recorder.config import JsonlConfig

Write = Callable[[str, str], Path]

TUNED = OmegaConf.load(Path(__file__).parents[2] / "conf" / "tuned" / "dqn_cartpole.yaml")


def test_names_give_typed_settings() -> None:
    config = compose("agent=dqn", "env=cartpole", "device=cpu", "agent.gamma=0.5")
    assert isinstance(config.agent, DqnConfig)
    assert isinstance(config.env, GymConfig)
    assert (config.env.id, config.agent.gamma, config.device) == ("CartPole-v1", 0.5, Device.cpu)
    assert config.name == "dqn_cartpole"


def test_the_tuned_file_of_a_pair_loses_against_experiment_and_command_line(
    folder: Path, write: Write
) -> None:
    assert compose("env=cartpole").agent.batch_size == TUNED.agent.batch_size != 64
    assert compose("env=cartpole", "~tuned").agent.batch_size == 64
    assert compose("env=cartpole", "agent.batch_size=7").agent.batch_size == 7
    write("experiment/x.yaml", "# @package _global_\nagent: {batch_size: 9}\n")
    mine = compose("env=cartpole", "experiment=x", config_dir=str(folder))
    assert (mine.agent.batch_size, mine.step_processor.n_steps) == (9, 3)  # type: ignore[attr-defined]


def test_the_tuned_file_follows_an_experiment_that_chooses() -> None:
    config = compose("experiment=cartpole_per")
    assert (config.name, config.agent.batch_size) == ("dqn_cartpole", TUNED.agent.batch_size)


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("recorder=none", []),
        ("recorder=[]", []),
        ("recorder=jsonl", ["jsonl"]),
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


def test_one_name_is_a_list_of_imports() -> None:
    assert compose("imports=yaml").imports == ["yaml"]


def test_interpolations_reach_hydra_and_other_settings() -> None:
    config = compose("seed=3", "name=s${seed}_${hydra:job.name}", "trainer.stop_evals=${seed}")
    assert (config.name, config.trainer.stop_evals) == ("s3_border-train", 3)


def test_jobs_of_a_sweep_know_their_number() -> None:
    composer = Composer()
    jobs = composer.sweep(["env=cartpole,acrobot", "seed=${hydra:job.num}"])
    assert jobs is not None
    configs = [composer.job(job, number).config for number, job in enumerate(jobs)]
    assert [(each.env.id, each.seed) for each in configs] == [("CartPole-v1", 0), ("Acrobot-v1", 1)]


def test_threads_compose_side_by_side() -> None:
    def one(number: int) -> tuple[str, int, float]:
        env = ["cartpole", "acrobot", "mountaincar", "lunarlander"][number % 4]
        config = compose(f"env={env}", f"seed={number}", "agent.gamma=0.9")
        return config.name, config.seed, config.agent.gamma

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(8)))
    names = ["dqn_cartpole", "dqn_acrobot", "dqn_mountaincar", "dqn_lunarlander"]
    assert found == [(names[number % 4], number, 0.9) for number in range(8)]


def test_hydra_is_as_before_inside_another_app(folder: Path, write: Write) -> None:
    write("theirs.yaml", "seed: 1\n")
    with initialize_config_dir(str(folder), version_base="1.2"):
        before = (GlobalHydra.instance().hydra, VersionBase.instance().getbase())
        told = HydraConfig.instance().cfg
        assert compose("agent=random").seed == 0
        assert (GlobalHydra.instance().hydra, VersionBase.instance().getbase()) == before
        assert HydraConfig.instance().cfg is told
        assert hydra_compose("theirs").seed == 1


APP = """
import hydra
from hydra.core.hydra_config import HydraConfig
from concurrent.futures import ThreadPoolExecutor
from border_cli import compose

@hydra.main(config_path=None, version_base="1.2")
def app(cfg):
    before = HydraConfig.get().runtime.output_dir
    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(lambda seed: compose("env=acrobot", f"seed={seed}").name, range(8)))
    assert names == {"dqn_acrobot"}, names
    assert HydraConfig.get().runtime.output_dir == before
    assert HydraConfig.get().job.name == "app"

app()
"""


@pytest.mark.slow
def test_a_foreign_hydra_app_may_compose(folder: Path, write: Write) -> None:
    write("app.py", APP)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_configuration_of_the_user_may_be_the_first(folder: Path, write: Write) -> None:
    write("agent/mine.yaml", "defaults: [dqn, _self_]\ngamma: 0.5\n")
    write("my_run.yaml", "defaults: [config, override agent: mine, _self_]\nseed: 5\n")
    config = compose("env=cartpole", config_dir=str(folder), config_name="my_run")
    assert (config.seed, config.agent.gamma, config.name) == (5, 0.5, "mine_cartpole")


def test_a_file_of_the_user_wins_over_ours_and_is_named(folder: Path, write: Write) -> None:
    text = "defaults: [/schema/agent/random@_here_, _self_]\n"
    mine = write("agent/dqn.yaml", text)
    job = Composer([f"file://{folder}"]).job(["env=cartpole", "~tuned"])
    assert isinstance(job.config.agent, RandomConfig)
    files = {source.group: source.file for source in job.sources if source.group != "recorder"}
    assert files["agent"] == str(mine)
    assert files["env"].endswith("conf/env/cartpole.yaml")
    assert files["config"].endswith("conf/config.yaml")
    assert "tuned" not in files


def test_recorders_are_among_the_sources() -> None:
    job = Composer().job(["recorder=[jsonl,console]"])
    assert [each.choice for each in job.sources if each.group == "recorder"] == ["jsonl", "console"]
    assert isinstance(job.config.recorder["jsonl"], JsonlConfig)


def test_a_config_leaves_no_interpolation_unresolved() -> None:
    shown = OmegaConf.to_yaml(OmegaConf.structured(compose("env=cartpole")))
    assert "${" not in shown


def test_an_unknown_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="--config-dir: no such directory: /nowhere"):
        compose(config_dir="/nowhere")
