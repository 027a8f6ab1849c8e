"""The ray manager with a Ray that it starts on this machine."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import psutil
import pytest

from border_cli import compose, resume, train
from border_cli.errors import ActorCrashed, BorderError
from border_cli.ray.manager import NICE
from tests.support.actor_managers import (
    Built,
    accounted,
    count,
    receive,
    receive_until_crash,
    snapshot,
    start,
    until,
)
from tests.support.case_sampling import weekly
from tests.support.scripted_envs import (
    BUILDING,
    Life,
    TellingPolicyFactory,
    complain,
    die,
    fail,
    rank,
)

STOPS_S = 5.0

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(autouse=True)
def ray_is_installed() -> None:
    pytest.importorskip("ray")


def test_all_permitted_samples_are_delivered_and_counted_even_if_a_process_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = [Life(deed=die, at=30), Life(deed=complain, at=3), Life(deed=rank)]
    built = Built(
        "ray", lives=lives, folder=tmp_path, policies=TellingPolicyFactory(),
        num_actors=2, n_buffer=10, exploration=[0.0, {"noise_std": 0.5}],
    )  # fmt: skip
    with built.manager as manager:
        manager.publish(snapshot(opt_steps=7))
        manager.permit(400)
        received = receive(manager, 400)
        built.scripted.wait_for("seed", times=3)  # the killed actor has been replaced
        until(lambda: manager.gauges()["async/actors"] == 2)  # `stop` kills actors being built
        began_s = time.monotonic()
        received += manager.stop()
        assert time.monotonic() - began_s < STOPS_S
        assert manager.gauges()["async/queue_fill"] == 0
    assert count(received) == 400
    accounted(manager, received)
    assert {experience.opt_steps for experience in received} == {7}
    for actor_id, action in enumerate((0, 50)):
        blocks = [part.transitions for part in received if part.actor_id == actor_id]
        assert {value for rows in blocks for value in rows.action.tolist()} == {action}
    stats = manager.stats()
    assert sum(actor.restarts for actor in stats) == 1
    assert 0 < sum(actor.lost_samples for actor in stats) <= 100  # one lease
    assert len(set(built.scripted.noted("seed"))) == 3  # one per incarnation
    assert len(built.scripted.noted("closed")) == 2  # all except the killed environment
    assert "the fuel is at 3 %" in caplog.text
    assert "failed on" in caplog.text
    assert "its worker process has died" in caplog.text
    assert sum(stats[0].seconds.values()) > 0
    # Actors yield to the learner but not to the broker, or they would wake up late.
    (ranked,) = set(built.scripted.noted("answer")) - {"None"}
    assert int(ranked) == min(os.nice(0) + NICE, 19)


def test_a_ray_of_our_own_is_on_this_machine_alone_and_leaves_no_file() -> None:
    built, addresses, folders = Built("ray", num_actors=1), set(), []
    with built.manager as manager:
        start(manager)
        receive(manager, 1)
        for child in psutil.Process().children(recursive=True):
            listening = [c for c in child.net_connections("inet") if c.status == "LISTEN"]
            addresses.update(c.laddr.ip.removeprefix("::ffff:") for c in listening)
            if child.name() == "raylet":
                folders.extend(re.findall(r"--temp_dir=(\S+)", " ".join(child.cmdline())))
    assert addresses == {"127.0.0.1"}
    assert len(folders) == 1
    assert not Path(folders[0]).exists()


@weekly
def test_an_environment_that_always_fails_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    lives = [Life(deed=fail, at=BUILDING)] * 9
    built = Built("ray", lives=lives, folder=tmp_path, num_actors=1)

    with pytest.raises(ActorCrashed, match="the simulator broke at step 0") as caught:
        receive_until_crash(built)
    assert "scripted_envs.py" in caught.value.first_traceback


def test_a_run_ends_at_its_samples_and_another_manager_goes_on_from_it(tmp_path: Path) -> None:
    ray = ["agent=dqn", "env=cartpole", "actor_manager=ray", "~tuned", "recorder=[]"]
    ray += ["step_processor.n_steps=1"]  # otherwise one step may yield several samples
    limits = ["trainer.warmup_period=100", "trainer.eval_interval=0", "evaluator.num_episodes=1"]
    run_dir = f"run_dir={tmp_path / 'run'}"
    train(compose(*ray, *limits, run_dir, "trainer.max_env_steps=1500"))
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["samples_total"] == 1500
    assert sum(actor["samples"] for actor in summary["actors"]) == 1500
    resume(tmp_path / "run", "actor_manager=process", "trainer.max_env_steps=2000")
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["samples_total"] == 2000


def test_an_address_where_nothing_answers_is_refused_before_anything_runs() -> None:
    built = Built("ray", num_actors=1, address="127.0.0.1:1")
    with pytest.raises(BorderError, match=r"actor_manager.address=127.0.0.1:1"):
        built.manager.__enter__()
