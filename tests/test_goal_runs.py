"""Runs in goal environments: metrics, refused settings and videos."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import reaching

from border_cli import compose, train
from border_cli.errors import ConfigError
from border_cli.recorder.read import read_metrics
from tests.support.case_sampling import sampled
from tests.support.commands import QUICK, eval_status, facts_of, train_status
from tests.support.terminals import Screen

Capture = pytest.CaptureFixture[str]
GOALS = ("agent=sac", "imports=[reaching]", "replay_buffer=hindsight")

pytestmark = pytest.mark.usefixtures("folder")


def trained(*more: str, env: str = "Reach", updates: int = 60) -> list[dict[str, Any]]:
    settings = (
        *("agent.hidden=[8]", "agent.batch_size=16", f"trainer.max_opt_steps={updates}"),
        *("trainer.warmup_period=40", "trainer.eval_interval=20", "trainer.record_interval=20"),
        *("evaluator.num_episodes=2", "actor_manager.n_buffer=5", "quiet=true", "run_dir=run"),
    )
    status = train_status(*GOALS, f"env.id=border/{env}-v0", *settings, *more)
    assert status == 0
    return [dict(row) for row in read_metrics(Path("run/metrics.jsonl"))]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_run_records_what_info_says_of_training_and_of_evaluations(backend: str) -> None:
    rows = trained(
        f"actor_manager={backend}", "env.num_envs=2", "env.info_metrics=[distance,absent]"
    )
    last = {name: value for row in rows for name, value in row.items()}
    assert {0 <= last[f"{group}/distance"] <= 2 for group in ("episode", "eval")} == {True}
    assert {0 <= last[f"{group}/is_success"] <= 1 for group in ("episode", "eval")} == {True}
    assert not [name for name in last if "absent" in name]


@pytest.mark.parametrize(("buffer", "hints"), [("uniform", True), ("hindsight", False)])
def test_the_header_suggests_hindsight_for_goals(buffer: str, hints: bool, capsys: Capture) -> None:
    typed = [*GOALS[:2], f"replay_buffer={buffer}", "env.id=border/Reach-v0", "dry_run=true"]
    assert train_status(*typed) == 0
    assert ("goals          replay_buffer=hindsight" in capsys.readouterr().out) == hints


REFUSED = [
    (
        ("env=pendulum",),
        "replay_buffer=hindsight needs Dict observations with achieved_goal and desired_goal, "
        "but those of env.id=Pendulum-v1 have no achieved_goal and no desired_goal. Use "
        "replay_buffer=uniform",
    ),
    (("env.id=border/Mute-v0",), "env.id=border/Mute-v0 has none. Add it, or use"),
    (
        ("env.id=border/Reach-v0", "step_processor=multi_step"),
        "step_processor.n_steps must be 1 with replay_buffer=hindsight, got 3",
    ),
    (
        ("env.id=border/Reach-v0", "trainer=offline"),
        "replay_buffer=hindsight needs actors, and trainer=offline has none",
    ),
    (
        ("env.id=border/Reach-v0", "evaluator.video_interval=1", "env.kwargs.drawable=0"),
        "env.id=border/Reach-v0 cannot be filmed: render raised RuntimeError('the display is "
        "gone')",
    ),
]


@pytest.mark.parametrize(("settings", "said"), sampled(REFUSED, every=len(REFUSED)))
def test_what_cannot_be_trained_on_is_refused_before_a_folder_is_made(
    folder: Path, capsys: Capture, settings: tuple[str, ...], said: str
) -> None:
    unknown = "trainer.warmup_period" if "trainer=offline" in settings else ()
    overrides = [override for override in (*GOALS, *QUICK) if not override.startswith(unknown)]
    assert train_status(*overrides, "~tuned", *settings, "run_dir=run") == 2
    assert said in capsys.readouterr().err
    assert not [*folder.iterdir()]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("OneGoal", r"OneGoal-v0: compute_reward's result -1.0 is not one number for each pair"),
        ("Informed", r"Informed-v0: compute_reward, called with an empty info, raised KeyError"),
        (
            "Odd",
            r"Odd-v0: compute_reward, called with an empty info, did not return within 0\.2 s .*"
            r"\n(.*\n)+.* THAT HANGS",
        ),
    ],
)
def test_rewards_are_tried_before_a_folder_is_made(folder: Path, env: str, said: str) -> None:
    says = ("env.kwargs.says=nothing", "trainer.stall_timeout_s=0.2") if env == "Odd" else ()
    with pytest.raises(ConfigError, match=rf"env\.id=border/{said}"):
        train(compose(*GOALS, *QUICK, f"env.id=border/{env}-v0", *says))
    assert not [*folder.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_films_are_recorded_during_a_run_as_files_and_in_tensorboard(background: bool) -> None:
    pil = pytest.importorskip("PIL.Image")
    where = "thread" if background else "serial"
    trained(
        *("evaluator.video_interval=30", f"evaluator.background={str(background).lower()}"),
        f"actor_manager={where}",
    )
    films = sorted(Path("run/videos").iterdir())
    if not background:  # in the background, a due evaluation is skipped while another runs
        assert [film.name for film in films] == ["0000000040.gif", "0000000060.gif"]
    assert films
    with pil.open(films[-1]) as gif:
        assert gif.n_frames == reaching.STEPS + 1
    [events] = Path("run").glob("events*")
    assert events.read_bytes().count(b"eval/film") == len(films)


def test_a_run_records_success_and_films_and_its_model_is_filmed(capsys: Capture) -> None:
    """A short version of the slow tests below."""
    pytest.importorskip("PIL.Image")
    rows = trained("evaluator.video_interval=20", "actor_manager=serial", updates=20)
    assert {"episode/is_success", "eval/is_success"} <= {name for row in rows for name in row}
    assert [film.name for film in Path("run/videos").iterdir()] == ["0000000020.gif"]
    assert eval_status("run", "video=film.gif") == 0
    assert Path("film.gif").stat().st_size > 500
    out, err = capsys.readouterr()
    assert "is_success" in out
    assert err.splitlines() == ["0 of 2 episodes played", "1 of 2 episodes played"]


def test_a_film_that_fails_does_not_end_a_run() -> None:
    """The check before the run renders one frame of a separate environment."""
    pytest.importorskip("PIL.Image")
    failing = ("evaluator.video_interval=20", "env.kwargs.drawable=3", "actor_manager=serial")
    trained(*failing, updates=20)
    assert facts_of(Path("run"))["status"] == "done"
    log = Path("run/border-train.log").read_text()
    assert "no film of the evaluation at update 20: env.id=border/Reach-v0 cannot be film" in log
    assert not Path("run/videos").exists()


@pytest.mark.slow
def test_a_saved_model_is_filmed_with_the_scores_of_its_evaluation(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("imageio_ffmpeg")
    trained("actor_manager=serial")
    capsys.readouterr()
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    for name in ("film.mp4", "film.gif"):
        assert eval_status("run", f"video={name}", "--json") == 0
        output = json.loads(capsys.readouterr().out)
        assert (output["video"], Path(name).stat().st_size > 500) == (name, True)
        assert output["is_success"] == pytest.approx(sum(output["info"]["is_success"]) / 2)
        assert len(output["returns"]) == 2
    assert screen.getvalue() == 2 * "0 of 2 episodes played\r1 of 2 episodes played\r"
    assert eval_status("run", "video=film.avi") == 2
    assert eval_status("run", "video=film.gif", "render=human") == 2
