"""`best.yaml`: as an experiment or a tuned file, it reproduces the winner's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from border_cli.config.compose import Composer, compose
from border_cli.settings.base import flat
from border_cli.tune.best import best_yaml
from tests.support.case_sampling import sampled
from tests.support.studies import a_row, a_study

PAIR = ("agent=dqn", "env=acrobot")
LIMIT = "trainer.max_env_steps=500"


def settings_with(folder: Path, name: str, text: str, *words: str) -> dict[str, object]:
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return flat(compose(*words, config_dir=str(folder)))


def text_of(*words: str, name: str = "my_study") -> str:
    """Returns `best.yaml` of a winner with these overrides, agent and env first."""
    agent, env = (word.partition("=")[2] for word in words[:2])
    winner = a_row(7, -70.0, -80.0)
    study = a_study(name=name, agent=agent, env=env)
    return best_yaml(Composer(), study, winner, compose(*words, LIMIT), [5.0, 15.0, 25.0])


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            "~tuned agent.hidden=[64,64] step_processor.n_steps=1 agent.gamma=0.9812345678901234",
            "agent.epsilon={initial:1,final:0.1,steps:500} agent.double=false",
        ],
        every=2,
    ),
)
def test_the_file_works_on_top_of_a_tuned_file_without_one_and_as_one(
    tmp_path: Path, words: str
) -> None:
    typed = [*PAIR, *words.split()]
    text, expected = text_of(*typed), flat(compose(*typed, LIMIT))
    settings = settings_with(tmp_path / "1", "experiment/best.yaml", text, *PAIR, "experiment=best")
    assert settings == expected
    config = compose(*PAIR, "~tuned", "experiment=best", config_dir=str(tmp_path / "1"))
    assert flat(config) == expected
    assert settings_with(tmp_path / "2", "tuned/dqn_acrobot.yaml", text, *PAIR) == expected


@pytest.mark.parametrize(
    "words",
    sampled(
        [
            "agent=rainbow env=cartpole replay_buffer=uniform step_processor=n_step",
            "agent=dqn env=acrobot replay_buffer=prioritized replay_buffer.alpha=0.7",
            "agent=dqn env=gym env.id=Acrobot-v1 trainer=sync",
        ],
        every=3,
    ),
)
def test_other_options_are_kept_by_an_experiment(tmp_path: Path, words: str) -> None:
    typed = words.split()
    text = text_of(*typed)
    assert "override /" in text
    settings = settings_with(tmp_path, "experiment/best.yaml", text, *typed[:2], "experiment=best")
    assert settings == flat(compose(*typed, LIMIT))


def test_the_comment_says_where_it_comes_from_and_how_to_use_it() -> None:
    text = text_of(*PAIR, name="my\nstu\x1bdy")
    command = "border-train -cd conf agent=dqn env=acrobot"
    assert text.splitlines()[:4] == [
        "# @package _global_",
        r"# Trial 7 of 'my\nstu\x1bdy': 15.00 [-9.84, 39.84] over 3 fresh seeds",
        f"# As conf/experiment/best.yaml: {command} experiment=best",
        f"# As conf/tuned/dqn_acrobot.yaml: {command}",
    ]


def test_a_study_with_a_tracker_has_a_file_that_composes(tmp_path: Path) -> None:
    text = text_of(*PAIR, "recorder=[jsonl,wandb]", "agent.gamma=0.9")
    settings = settings_with(tmp_path, "experiment/best.yaml", text, *PAIR, "experiment=best")
    assert settings["agent.gamma"] == 0.9
