"""The training loop, with fakes and with the real actor managers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from border_cli.core.output import Resumption
from border_cli.core.types import Batch
from border_cli.errors import ActorCrashed, Interrupted, NotFinite
from tests.support.case_sampling import sampled
from tests.support.fakes import (
    CountingEnv,
    FakeAgent,
    FakeClock,
    ListBuffer,
    ListRecorder,
    MemoryCheckpoints,
    ScriptedEvaluator,
)
from tests.support.scripted_envs import Life, fail
from tests.support.trainers import BuiltTrainer

KINDS = [("sync", "serial"), ("async", "serial"), ("async", "thread"), ("async", "process")]


@pytest.fixture(params=KINDS, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


@pytest.mark.parametrize("ratio", sampled([0.25, 1.0, 4.0, 16.0], every=2))
def test_the_replay_ratio_is_the_one_asked_for(kind: tuple[str, str], ratio: float) -> None:
    built = BuiltTrainer(*kind, samples_per_opt_step=ratio, max_opt_steps=400)
    built.train()
    counters = built.trainer.counters
    assert counters.opt_steps == 400
    ahead = counters.samples_total - 20 - 400 * ratio
    slack = built.trainer.pace.slack
    assert -ratio <= ahead <= slack + 2  # a round of sync adds at most one row per actor


def test_every_sample_that_was_collected_is_in_the_buffer(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind)
    stats = built.train()
    assert sum(actor.samples for actor in stats) == built.trainer.counters.samples_total
    assert sum(actor.env_steps for actor in stats) == built.trainer.counters.env_steps
    assert sum(len(rows) for rows in built.buffer.pushed) == built.trainer.counters.samples_total


def test_env_steps_end_the_run_after_the_updates_they_pay_for(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind, max_opt_steps=None, max_env_steps=101)
    built.train()
    assert built.trainer.counters.env_steps == 101
    assert built.trainer.counters.opt_steps == 101 - 20 + 1  # the first update needs 20 samples


class FollowingBuffer(ListBuffer):
    """Records the reported progress of the run. Every call of `sample` takes a second."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.told: list[float] = []
        self._clock = clock

    @property
    def follows_run(self) -> bool:
        return True

    def update_schedules(self, done: float) -> None:
        self.told.append(done)

    def sample(self, batch_size: int) -> Batch:
        self._clock.time_s += 1
        return super().sample(batch_size)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_opt_steps": 4}, [0, 0.25, 0.5, 0.75]),
        # sync with 2 actors and 2 samples per update: after 20, 22, … of 28 env steps
        ({"max_env_steps": 28, "max_opt_steps": None}, [20 / 28, 22 / 28, 24 / 28, 26 / 28, 1]),
        ({"max_time_s": 5, "max_opt_steps": None}, [0, 0.2, 0.4, 0.6, 0.8]),
        # the limit that is reached first counts
        ({"max_time_s": 50, "max_opt_steps": 4}, [0, 0.25, 0.5, 0.75]),
        ({"max_opt_steps": None, "stop_at_score": 0.0, "eval_interval": 3}, [0, 0, 0]),
    ],
)
def test_a_buffer_that_follows_the_run_is_told_how_much_of_it_is_over(
    limits: dict[str, Any], told: list[float]
) -> None:
    clock = FakeClock()
    buffer = FollowingBuffer(clock)
    settings = {"samples_per_opt_step": 2.0, "stop_evals": 1} | limits
    BuiltTrainer("sync", buffer=buffer, clock=clock, **settings).train()
    assert buffer.told == pytest.approx(told)


def test_sync_without_a_ratio_makes_one_update_per_round() -> None:
    built = BuiltTrainer("sync", samples_per_opt_step=None, max_opt_steps=100)
    built.train()
    assert built.trainer.counters.samples_total == 20 + 2 * 99


def test_sync_acts_with_the_newest_weights() -> None:
    built = BuiltTrainer("sync", num_actors=1, max_opt_steps=10)
    built.train()
    policy, _ = built.built.policies.made[0]
    assert [weights.opt_steps for weights in policy.loaded[-9:]] == list(range(1, 10))


def test_actors_are_in_the_warm_up_until_it_is_over(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind, num_actors=1, max_opt_steps=200, sync_interval=10)
    built.train()
    for policy, _ in built.built.policies.made:  # policies built in this process
        flags = [weights.warm_up for weights in policy.loaded]
        assert flags[0] is True
        assert flags[-1] is False
        assert flags == sorted(flags, reverse=True)


def test_actors_may_act_by_their_policy_in_the_warm_up(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind, num_actors=1, max_opt_steps=20, warmup="policy")
    built.train()
    for policy, _ in built.built.policies.made:
        assert not any(weights.warm_up for weights in policy.loaded)


def test_weights_are_published_at_every_sync_interval() -> None:
    built = BuiltTrainer("async", "serial", sync_interval=25, max_opt_steps=100, num_actors=1)
    built.train()
    policy, _ = built.built.policies.made[0]
    loaded = [weights.opt_steps for weights in policy.loaded]
    assert loaded[:4] == [0, 0, 25, 50]  # first weights, end of the warm-up, then the interval


def test_an_interval_of_zero_switches_its_action_off_but_the_end_still_judges_and_saves() -> None:
    built = BuiltTrainer(
        "async", eval_interval=0, record_interval=0, save_interval=0, sync_interval=0,
        max_opt_steps=50,
    )  # fmt: skip
    built.train()
    assert built.evaluator.policies == [50]
    assert built.checkpoints.saved == [50]
    policy, _ = built.built.policies.made[0]
    assert {weights.opt_steps for weights in policy.loaded} == {0}
    ((step, row, final),) = built.recorder.rows
    assert (step.opt_steps, final) == (50, True)
    assert row["eval/return"] == 1.0


def test_the_order_is_evaluate_then_best_then_record_then_save() -> None:
    events: list[str] = []

    class Evaluator(ScriptedEvaluator):
        def evaluate(self, policy):  # type: ignore[no-untyped-def]
            events.append("evaluate")
            return super().evaluate(policy)

    class Checkpoints(MemoryCheckpoints):
        def save(self, *_: object) -> None:
            events.append("save")

        def save_best(self, *_: object) -> None:
            events.append("best")

    recorder = ListRecorder(fail=lambda: events.append("record"))
    built = BuiltTrainer(
        evaluator=Evaluator(), checkpoints=Checkpoints(), recorder=recorder,
        max_opt_steps=11, eval_interval=10, save_interval=10, record_interval=10,
    )  # fmt: skip
    built.train()
    assert events[:4] == ["evaluate", "best", "record", "save"]


def test_a_score_must_be_reached_in_a_row_to_end_the_run() -> None:
    built = BuiltTrainer(
        evaluator=ScriptedEvaluator([9.0, 1.0, 9.0, 9.0]), max_opt_steps=1_000, eval_interval=10,
        stop_at_score=9.0, stop_evals=2,
    )  # fmt: skip
    built.train()
    assert built.trainer.counters.opt_steps == 40
    assert len(built.evaluator.policies) == 4  # the last weights are not evaluated twice


def test_the_last_evaluation_and_the_last_window_are_written_and_marked() -> None:
    built = BuiltTrainer(max_opt_steps=25, eval_interval=10, record_interval=10)
    built.train()
    assert built.recorder.of("eval/return") == [(10, 1.0), (20, 1.0), (25, 1.0)]
    assert [final for _, _, final in built.recorder.rows] == [False, False, True]
    assert built.recorder.of("async/samples_total")[-1][0] == 25


def takes(built: BuiltTrainer, seconds: float, action: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        built.clock.time_s += seconds  # type: ignore[attr-defined]
        return action(*arguments, **named)

    return slow


@pytest.mark.parametrize("trainer", ["sync", "async"])
def test_every_second_of_the_learner_is_told_to_the_section_that_took_it(trainer: str) -> None:
    built = BuiltTrainer(
        trainer, make_env=lambda _: CountingEnv(on_step=lambda _: tick(1.0)),
        max_opt_steps=40, eval_interval=20, save_interval=10, record_interval=20,
    )  # fmt: skip

    def tick(seconds: float) -> None:
        built.clock.time_s += seconds  # type: ignore[attr-defined]

    built.buffer.push = takes(built, 2.0, built.buffer.push)  # type: ignore[method-assign]
    built.buffer.sample = takes(built, 0.25, built.buffer.sample)  # type: ignore[method-assign]
    built.agent._loss = takes(built, 4.0, built.agent._loss)
    built.evaluator.evaluate = takes(built, 64.0, built.evaluator.evaluate)  # type: ignore[method-assign]
    built.checkpoints.save = takes(built, 8.0, built.checkpoints.save)  # type: ignore[method-assign]
    built.checkpoints.save_best = takes(built, 16.0, built.checkpoints.save_best)  # type: ignore[method-assign]
    built.recorder.write = takes(built, 32.0, built.recorder.write)  # type: ignore[method-assign]
    built.manager.publish = takes(built, 128.0, built.manager.publish)  # type: ignore[method-assign]
    stats = built.train()

    seconds = built.trainer.clock.timing.seconds()
    assert seconds == {
        "wait": sum(actor.env_steps for actor in stats) * 1.0,  # the actors step meanwhile
        "push": len(built.buffer.pushed) * 2.0,
        "sample": 40 * 0.25,
        "update": 40 * 4.0,
        "priorities": 0.0,
        "evaluate": 2 * 64.0 + 1 * 16.0,  # one best model was saved; a tie is not better
        "save": 4 * 8.0,
        "record": 3 * 32.0,  # the run ends with a row of its own
        "sync": seconds["sync"],
        "other": 0.0,
    }
    assert seconds["sync"] % 128.0 == 0 < seconds["sync"]
    assert sum(seconds.values()) == built.trainer.clock.elapsed_s


def test_priorities_have_a_section_of_their_own() -> None:
    built = BuiltTrainer(max_opt_steps=30)
    built.trainer._uses_priorities = True
    built.buffer.update_priorities = takes(built, 3.0, built.buffer.update_priorities)  # type: ignore[method-assign]
    built.train()
    assert built.trainer.clock.timing.seconds()["priorities"] == 90.0


def test_time_ends_the_run_and_saves_in_between() -> None:
    built = BuiltTrainer(max_opt_steps=None, max_time_s=10.0, save_every_s=3.0, save_interval=0)
    built.clock.time_s = 100.0  # type: ignore[attr-defined]  # building took 100 s

    def tick(_: int) -> float:
        built.clock.time_s += 1.0  # type: ignore[attr-defined]
        return 0.0

    built.agent._loss = tick
    built.train()
    assert built.trainer.counters.opt_steps == 10
    assert built.checkpoints.saved == [3, 6, 9, 10]


def test_a_resumed_run_counts_the_time_of_earlier_attempts() -> None:
    first, second = (BuiltTrainer(max_opt_steps=None, max_time_s=limit) for limit in (4.0, 10.0))
    for built in (first, second):
        built.agent._loss = takes(built, 1.0, built.agent._loss)
    first.train()
    saved = first.checkpoints.states[-1]
    second.trainer.resume(
        Resumption(counters=saved.counters, run=saved.run, agent=saved.agent, load_rows=None)
    )
    second.train()
    assert second.trainer.counters.opt_steps == 10


@pytest.mark.parametrize("bad_at", [1, 55, 199])
def test_a_loss_that_is_not_finite_ends_the_run_unsaved_with_its_step(bad_at: int) -> None:
    agent = FakeAgent(loss=lambda step: float("nan") if step == bad_at else 1.0)
    built = BuiltTrainer(agent=agent, max_opt_steps=200, save_interval=40, eval_interval=0)
    with pytest.raises(NotFinite, match=f"train/loss is nan at update {bad_at};"):
        built.train()
    assert built.checkpoints.saved == list(range(40, bad_at, 40))


def test_weights_that_are_not_finite_are_never_saved_though_the_losses_are_fine() -> None:
    class Spoilt(FakeAgent):
        def first_not_finite(self) -> str | None:
            return "online.bias" if self.opt_steps > 25 else None

    built = BuiltTrainer(agent=Spoilt(), max_opt_steps=50, save_interval=10, eval_interval=0)
    with pytest.raises(NotFinite, match=r"^online\.bias of the agent .* update 30;"):
        built.train()
    assert built.checkpoints.saved == [10, 20]


def test_an_interrupted_run_saves_and_does_not_evaluate(kind: tuple[str, str]) -> None:
    built = BuiltTrainer(*kind, max_opt_steps=1_000, eval_interval=0)

    def interrupt(step: int) -> float:
        if step == 30:
            built.stop.request(Interrupted(2))
        return 0.0

    built.agent._loss = interrupt
    with pytest.raises(Interrupted, match="SIGINT"):
        built.train()
    assert built.checkpoints.saved == [30]
    assert built.evaluator.policies == []
    assert built.trainer.counters.samples_total == sum(
        actor.env_steps for actor in built.manager.stats()
    )


def test_an_update_that_raises_still_leaves_a_checkpoint(kind: tuple[str, str]) -> None:
    def broken(step: int) -> float:
        if step == 30:
            raise ZeroDivisionError("my own agent")
        return 0.0

    built = BuiltTrainer(*kind, agent=FakeAgent(loss=broken), max_opt_steps=1_000)
    with pytest.raises(ZeroDivisionError, match="my own agent"):
        built.train()
    assert built.checkpoints.saved == [29]


def test_a_crashed_actor_ends_the_run_with_a_checkpoint(
    kind: tuple[str, str], tmp_path: Path
) -> None:
    built = BuiltTrainer(
        *kind, lives=[Life(deed=fail, at=100)], folder=tmp_path, num_actors=1, max_opt_steps=10_000
    )
    with pytest.raises(ActorCrashed, match="the simulator broke at step 100"):
        built.train()
    assert len(built.checkpoints.saved) == 1


def test_all_actors_dead_in_the_warm_up_never_means_a_waiting_learner(
    kind: tuple[str, str], tmp_path: Path
) -> None:
    built = BuiltTrainer(*kind, lives=[Life(deed=fail, at=1)] * 2, folder=tmp_path)
    with pytest.raises(ActorCrashed, match="the simulator broke at step 1"):
        built.train()
