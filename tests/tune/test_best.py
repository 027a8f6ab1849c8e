"""best.yaml gives the settings of the winner again, as an experiment and as a tuned file."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies import a_row, a_study

from border_cli.config.compose import Composer, compose
from border_cli.settings.base import flat
from border_cli.tune.best import best_yaml

LIMIT = "trainer.max_env_steps=500"


def settings_with(folder: Path, place: str, text: str, *words: str) -> dict[str, object]:
    file = folder / place
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return flat(compose(*words, config_dir=str(folder)))


def text_of(pair: tuple[str, str], fixed: list[str], found: list[str]) -> str:
    """best.yaml of a study with these overrides, whose winner has the last ones."""
    words = (f"agent={pair[0]}", f"env={pair[1]}", *fixed)
    study = a_study(agent=pair[0], env=pair[1], overrides=words)
    winner = a_row(7, -70.0, -80.0, settings=tuple(found), values={"agent.tau": "0.01"})
    return best_yaml(Composer(), study, winner, {100: 5.0, 101: 15.0, 102: 25.0})


@pytest.mark.parametrize(
    ("pair", "fixed", "found"),
    [
        (("dqn", "acrobot"), [], ["agent.learning_rate=1e-3", "agent.hidden=[64,64]"]),
        (("dqn", "acrobot"), [], ["agent.double=false", "step_processor.n_steps=1"]),
        (("dqn", "acrobot"), ["~tuned"], ["agent.learning_rate=1e-3"]),
        (
            ("dqn", "acrobot"),
            ["trainer.eval_interval_env_steps=500"],
            ["agent.epsilon={initial: 1, final: 0.1, steps: 500}"],
        ),
        (("sac", "pendulum"), ["trainer.max_time_s=900"], ["trainer.samples_per_opt_step=2"]),
        (("rainbow", "acrobot"), ["~tuned"], ["agent.noisy_std=0.2"]),
    ],
)
def test_it_means_the_same_above_the_tuned_file_and_in_its_place(
    tmp_path: Path, pair: tuple[str, str], fixed: list[str], found: list[str]
) -> None:
    chosen, text = (f"agent={pair[0]}", f"env={pair[1]}"), text_of(pair, fixed, found)
    wanted = flat(compose(*chosen, *fixed, *found, LIMIT))
    experiment = settings_with(
        tmp_path / "1", "experiment/best.yaml", text, *chosen, "experiment=best"
    )
    assert experiment == wanted
    tuned = settings_with(tmp_path / "2", f"tuned/{pair[0]}_{pair[1]}.yaml", text, *chosen)
    assert tuned == wanted


@pytest.mark.parametrize(
    ("env", "fixed"),
    [
        ("acrobot", ["replay_buffer=prioritized", "replay_buffer.alpha=0.7", "recorder=[jsonl]"]),
        ("cartpole", ["experiment=cartpole_per"]),
        ("gym", ["env.id=Acrobot-v1", "trainer=sync"]),
    ],
)
def test_choices_of_options_are_kept_by_an_experiment_and_no_tuned_file_is_offered(
    tmp_path: Path, env: str, fixed: list[str]
) -> None:
    text, pair = text_of(("dqn", env), fixed, ["agent.tau=0.01"]), ("agent=dqn", f"env={env}")
    assert "override /" in text
    assert "conf/tuned" not in text
    made = settings_with(tmp_path, "experiment/best.yaml", text, *pair, "experiment=best")
    assert made == flat(compose(*pair, *fixed, "agent.tau=0.01", LIMIT))


def test_the_comment_says_where_it_comes_from_and_how_to_use_it() -> None:
    lines = text_of(("dqn", "acrobot"), [], ["agent.tau=0.01"]).splitlines()
    assert lines[0] == "# @package _global_"
    assert lines[1] == "# Trial 7 of my_study, 2026-01-01T00:00:07+0000: tau=0.01"
    assert lines[2].startswith("# Score after 500 env steps")
    assert "15.00 [-9.84, 39.84] over fresh seeds 100, 101, 102; -75.0" in lines[3]
    pair = "agent=dqn env=acrobot"
    assert f"border-train -cd conf experiment=best {pair}" in lines[4]
    assert lines[5] == f"# As conf/tuned/dqn_acrobot.yaml: border-train -cd conf {pair}"
    assert lines[6] == "agent:"
