"""Actors on a Ray of our own; clusters of several nodes are in tests/cluster."""

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


def test_what_is_permitted_is_made_counted_and_delivered_also_when_a_process_is_killed(
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
        arrived = receive(manager, 400)
        built.scripted.wait_for("seed", times=3)  # the one that was killed has been replaced
        until(lambda: manager.gauges()["async/actors"] == 2)  # it would be killed while it is built
        began_s = time.monotonic()
        arrived += manager.stop()
        assert time.monotonic() - began_s < STOPS_S
        assert manager.gauges()["async/queue_fill"] == 0
    assert count(arrived) == 400
    accounted(manager, arrived)
    assert {each.opt_steps for each in arrived} == {7}
    for actor_id, action in enumerate((0, 50)):
        mine = [each.transitions for each in arrived if each.actor_id == actor_id]
        assert {value for rows in mine for value in rows.action.tolist()} == {action}
    stats = manager.stats()
    assert sum(each.restarts for each in stats) == 1
    assert 0 < sum(each.lost_samples for each in stats) <= 100  # one lease
    assert len(set(built.scripted.noted("seed"))) == 3  # of each incarnation
    assert len(built.scripted.noted("closed")) == 2  # all but the one that was killed
    assert "the fuel is at 3 %" in caplog.text
    assert "failed on" in caplog.text
    assert "its worker process has died" in caplog.text
    assert sum(stats[0].seconds.values()) > 0
    # Behind the learner, and not behind the broker: they would wake up late.
    (ranked,) = set(built.scripted.noted("answer")) - {"None"}
    assert int(ranked) == min(os.nice(0) + NICE, 19)


def test_a_ray_of_our_own_is_on_this_machine_alone_and_leaves_no_file() -> None:
    built, addresses, folders = Built("ray", num_actors=1), set(), []
    with built.manager as manager:
        start(manager)
        receive(manager, 1)
        for each in psutil.Process().children(recursive=True):
            listening = [c for c in each.net_connections("inet") if c.status == "LISTEN"]
            addresses.update(c.laddr.ip.removeprefix("::ffff:") for c in listening)
            if each.name() == "raylet":
                folders.extend(re.findall(r"--temp_dir=(\S+)", " ".join(each.cmdline())))
    assert addresses == {"127.0.0.1"}
    assert len(folders) == 1
    assert not Path(folders[0]).exists()


def test_an_environment_that_always_fails_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    lives = [Life(deed=fail, at=BUILDING)] * 9
    built = Built("ray", lives=lives, folder=tmp_path, num_actors=1)

    with pytest.raises(ActorCrashed, match="the simulator broke at step 0") as caught:
        receive_until_crash(built)
    assert "scripted_envs.py" in caught.value.first_traceback


def test_a_run_ends_at_its_samples_and_another_manager_goes_on_from_it(tmp_path: Path) -> None:
    ray = ["agent=dqn", "env=cartpole", "actor_manager=ray", "~tuned", "recorder=[]"]
    ray += ["step_processor.n_steps=1"]  # else an end of an episode makes up to n samples at once
    limits = ["trainer.warmup_period=100", "trainer.eval_interval=0", "evaluator.num_episodes=1"]
    run_dir = f"run_dir={tmp_path / 'run'}"
    train(compose(*ray, *limits, run_dir, "trainer.max_env_steps=1500"))
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["samples_total"] == 1500
    assert sum(each["samples"] for each in summary["actors"]) == 1500
    resume(tmp_path / "run", "actor_manager=process", "trainer.max_env_steps=2000")
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["samples_total"] == 2000


def test_an_address_where_nothing_answers_is_refused_before_anything_runs() -> None:
    built = Built("ray", num_actors=1, address="127.0.0.1:1")
    with pytest.raises(BorderError, match=r"actor_manager.address=127.0.0.1:1"):
        built.manager.__enter__()
