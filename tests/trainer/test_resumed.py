"""Resumed trainers: what is repeated counts once, and comes from the right weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from border_cli import compose, resume, train
from border_cli.core.callback import Callback
from border_cli.core.output import RecordStep, Resumption, RunState
from border_cli.core.types import Episode
from border_cli.errors import Interrupted, RunFailed
from border_cli.trainer.callbacks import Callbacks
from border_cli.trainer.evaluating import Scores
from border_cli.trainer.metrics import Counters, MetricsWindow, RunClock
from border_cli.trainer.online import ReplayRatio
from tests.support.commands import rows_of
from tests.support.fakes import CountingEnv, FakeClock, ScriptedEvaluator
from tests.support.remembering_callbacks import StopsAt
from tests.support.trainers import BuiltTrainer
from tests.trainer.test_evaluating import RememberedStates, SlowRunner
from tests.trainer.test_rollouts import SMALL


def resumed(built: BuiltTrainer, saved: RunState) -> BuiltTrainer:
    """Resumes without the rows of the replay buffer."""
    built.trainer.resume(
        Resumption(counters=saved.counters, run=saved.run, agent=saved.agent, load_rows=None)
    )
    return built


@pytest.mark.usefixtures("folder")
def test_a_rollout_collected_again_is_of_the_newest_policy() -> None:
    no_rows = "checkpoint.replay_buffer=false"
    train(compose(*SMALL, "agent.learning_rate=0.01", "trainer.max_opt_steps=15", no_rows))
    resume("run", "trainer.max_opt_steps=16")
    name = "train/log_prob_gap"
    gaps = [row[name] for row in rows_of(Path("run")) if name in row]
    assert len(gaps) == 16
    assert max(gaps) < 1e-5


@pytest.mark.usefixtures("folder")
def test_with_fewer_actors_the_rollout_is_used_to_its_end() -> None:
    settings = ("env.num_envs=1", "trainer.max_opt_steps=3", "actor_manager.num_actors=4")
    train(compose(*SMALL, *settings))  # 4 minibatches of 16 are an epoch
    fewer = ("trainer.max_opt_steps=10", "actor_manager.num_actors=3")
    assert resume("run", *fewer).trainer_stats.env_steps == 64 + 48


def test_an_interrupted_last_evaluation_leaves_the_checkpoint_before_it() -> None:
    class Interrupts(ScriptedEvaluator):
        def evaluate(self, policy: Any) -> Any:
            del policy
            raise Interrupted(2)

    built = BuiltTrainer(evaluator=Interrupts(), max_opt_steps=33, n_buffer=7, eval_interval=0)
    with pytest.raises(Interrupted):
        built.train()
    (saved,) = built.checkpoints.states
    assert saved.counters["samples_total"] == saved.run["actors"]["samples"]


@pytest.mark.parametrize("warmup", [0, 1, 40])
@pytest.mark.parametrize("opt_steps", [0, 50])
def test_a_refill_needs_a_warm_up_of_new_samples(warmup: int, opt_steps: int) -> None:
    ratio = ReplayRatio(warmup_period=warmup, samples_per_opt_step=1.0, slack=4)
    ratio.refill_buffer(opt_steps, 200)
    assert ratio.needed(opt_steps) == 200 + max(1, warmup)


def test_a_run_stopped_in_its_warm_up_refills_an_empty_buffer() -> None:
    first, second = (BuiltTrainer("sync", warmup_period=40, max_opt_steps=1) for _ in range(2))

    def stop() -> None:
        if first.trainer.counters.samples_total == 20:
            first.stop.request(Interrupted(2))

    first.stop.listen = stop  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        first.train()
    resumed(second, first.checkpoints.states[-1]).train()
    assert second.trainer.counters.samples_total == 20 + 40


def test_a_pending_evaluation_repeated_inline_saves_the_evaluated_weights() -> None:
    runner = SlowRunner(looks=1_000, score={})
    first = BuiltTrainer("sync", runner=runner, eval_interval=20, max_opt_steps=25)
    first.train()
    saved = first.checkpoints.states[-1]
    assert saved.run["evaluating"]["pending"]
    checkpoints = RememberedStates()
    second = BuiltTrainer("sync", checkpoints=checkpoints, eval_interval=20, max_opt_steps=70)
    resumed(second, saved).train()
    assert checkpoints.best_states == [(25, 25)]
    assert second.recorder.of("eval/return")[0] == (25, 1.0)


class FailsAfter30(Callback):
    def on_episode(self, moment: RecordStep, episode: Episode) -> None:
        del episode
        if moment.opt_steps >= 30:
            raise ValueError("no such thing")


def test_a_hook_that_raises_again_at_the_end_does_not_prevent_the_last_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    built = BuiltTrainer(
        "async", "thread", callbacks=[FailsAfter30()], samples_per_opt_step=None,
        make_env=lambda _: CountingEnv(episode=1), max_opt_steps=10**9, eval_interval=0,
        save_interval=0,
    )  # fmt: skip
    with pytest.raises(RunFailed, match="FailsAfter30 failed in on_episode"):
        built.train()
    assert built.checkpoints.saved == [built.trainer.counters.opt_steps]
    assert "could not save" not in caplog.text


def test_an_evaluation_repeated_by_a_resume_counts_once() -> None:
    scores = Scores()
    scores.add(9.0, 20, 8.0)
    again = Scores()
    again.load_state_dict(scores.state_dict())
    assert not again.add(9.0, 20, 8.0)
    assert again == scores


def test_rates_of_a_resumed_run_count_from_its_start() -> None:
    saved = MetricsWindow(Counters(opt_steps=100, samples_total=300)).state_dict()
    counters = Counters(opt_steps=190, samples_total=400)
    window = MetricsWindow(counters)
    window.load_state_dict(saved)
    window.begin(1_000.0, [], {})
    counters.opt_steps = 200
    assert window.close(1_005.0, [], {})["async/opt_steps_per_sec"] == 2.0


def test_a_stop_in_a_damaged_checkpoint_is_forgotten_with_it() -> None:
    stopped, callbacks = Callbacks({"it": StopsAt(3)}), Callbacks({"it": StopsAt(3)})
    fresh = stopped.state_dict()
    hook = stopped.hook("on_update")
    assert hook is not None
    hook(RecordStep(opt_steps=3, env_steps=3, time_s=0.0), {})
    callbacks.load_state_dict(stopped.state_dict())
    assert callbacks.stopped_by is not None
    callbacks.load_state_dict(fresh)
    assert callbacks.stopped_by is None
    assert callbacks.state_dict() == fresh


def test_a_run_that_fails_at_once_has_the_duration_of_its_earlier_attempts() -> None:
    clock = RunClock(FakeClock())
    clock.load_state_dict({"time_s": 20.0, "seconds": {}})
    assert clock.elapsed_s == 20.0


def test_a_checkpoint_is_due_by_time_also_while_the_warm_up_lasts() -> None:
    clock = FakeClock()

    def step(_: Any) -> None:
        clock.time_s += 1.0

    built = BuiltTrainer(
        "sync", clock=clock, warmup_period=40, max_opt_steps=1, save_every_s=5.0, save_interval=0,
        make_env=lambda _: CountingEnv(on_step=step),
    )  # fmt: skip
    built.train()
    assert built.checkpoints.saved.count(0) >= 2
