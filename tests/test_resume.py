"""Resumed runs are bitwise equal to uninterrupted ones."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import masked  # noqa: F401 - registers environments
import numpy as np
import pytest
import reaching  # noqa: F401 - registers environments with goals
from _pytest.mark import ParameterSet
from global_draws import GUESS

from border_cli.actor_manager.config import ProcessConfig, SerialConfig, ThreadConfig
from border_cli.agent.actor_critic_config import Noise
from border_cli.agent.config import (
    DqnConfig,
    Exploration,
    IqlConfig,
    PpoConfig,
    RandomConfig,
    SacConfig,
    Td3Config,
)
from border_cli.agent.ppo_config import OnPolicyExploration
from border_cli.core.interfaces import ReplayBuffer, RolloutStore
from border_cli.core.output import Progress, Recorder, RecordStep
from border_cli.core.rows import columns_of
from border_cli.core.state import load_state
from border_cli.core.stop import StopFlag
from border_cli.core.types import Metrics, Transitions
from border_cli.env.config import GymConfig, Vectorization
from border_cli.errors import CheckpointError, Interrupted, RunDeleted
from border_cli.evaluator.config import EpisodesConfig
from border_cli.launch.build import (
    build_agent,
    build_goal_rewards,
    build_recorders,
    build_replay_buffer,
    env_factory,
    evaluation_policy,
)
from border_cli.launch.effective import effective_settings
from border_cli.recorder.config import JsonlConfig, TensorboardConfig
from border_cli.recorder.read import read_metrics
from border_cli.registry import register_builtin
from border_cli.replay_buffer.config import (
    DatasetConfig,
    HindsightConfig,
    Normalize,
    PrioritizedConfig,
    RolloutConfig,
    UniformConfig,
)
from border_cli.run.checkpoint_files import VerifiedCheckpoint, read_checkpoint
from border_cli.run.finding import find_resumable
from border_cli.run.status import read_run
from border_cli.settings.run import CheckpointConfig, RunConfig
from border_cli.step_processor.config import NStepConfig
from border_cli.trainer import rollouts
from border_cli.trainer.config import AsyncConfig, OfflineConfig, SyncConfig
from tests.support.case_sampling import chosen, sampled, thinned
from tests.support.datasets import CARTPOLE, datasets_in, write_cartpole
from tests.support.whole_runs import trained

INTERVALS = {
    "eval_interval": 100,
    "record_interval": 50,
    "save_interval": 150,
    "sync_interval": 20,
}
# Entries that depend on the clock or on paths. The best model may differ too,
# since every attempt ends with an evaluation.
NOT_OF_THE_RUN = {
    *("time_s", "seconds", "duration_s", "newest", "recorders"),
    *("best", "best_opt_steps"),
}
WHOLE = 400  # updates
TWO_CARTPOLES = GymConfig(id="CartPole-v1", num_envs=2, max_episode_steps=60)


def config_of(kind: str = "sync", *, updates: int = WHOLE, **changes: Any) -> RunConfig:
    """Returns settings of a small CartPole run; `trainer` updates the trainer's settings."""
    register_builtin()
    warm_up = {} if kind in ("offline", "rollouts") else {"warmup_period": 100}
    trainer = INTERVALS | warm_up | {"max_opt_steps": updates} | changes.pop("trainer", {})
    if kind == "rollouts":
        del trainer["sync_interval"]
    settings: dict[str, Any] = {
        "seed": 5,
        "agent": DqnConfig(
            hidden=[16], batch_size=16, epsilon={"steps": 300}, target_interval=30
        ),
        "env": GymConfig(id="CartPole-v1", max_episode_steps=60),
        "step_processor": NStepConfig(n_steps=3),
        "replay_buffer": UniformConfig(capacity=300),
        "actor_manager": {
            "sync": SerialConfig, "serial": SerialConfig, "thread": ThreadConfig,
            "process": ProcessConfig, "offline": ThreadConfig, "rollouts": SerialConfig,
        }[kind](num_actors=2, n_buffer=7),
        "trainer": {
            "sync": SyncConfig, "offline": OfflineConfig, "rollouts": SyncConfig
        }.get(kind, AsyncConfig)(**trainer),
        "evaluator": EpisodesConfig(num_episodes=3),
        "recorder": {"jsonl": JsonlConfig(), "tensorboard": TensorboardConfig()},
    }  # fmt: skip
    return RunConfig(**settings | changes)


class ActsAt(Recorder):
    """Calls `act` once a row of `opt_steps` updates is written, or that phase is shown."""

    def __init__(self, act: Callable[[], object], opt_steps: int, phase: str | None = None) -> None:
        self._act, self._opt_steps, self._phase = act, opt_steps, phase

    def _look(self, step: RecordStep, phase: str | None) -> None:
        if self._phase == phase and step.opt_steps >= self._opt_steps:
            self._act()

    def write(self, step: RecordStep, metrics: Metrics, *, final: bool = False) -> None:
        del metrics, final
        self._look(step, None)

    def show(self, progress: Progress) -> None:
        self._look(progress.step, progress.phase)

    def close(self) -> None:
        pass


def interrupt(config: RunConfig, folder: Path, at: int, phase: str | None = None) -> None:
    """Runs until a row of at least `at` updates is written, or `phase` is reached after `at`."""
    stop = StopFlag()
    folder.mkdir(exist_ok=True)
    recorders = [
        *build_recorders(effective_settings(config), folder, None),
        ActsAt(lambda: stop.request(Interrupted(2)), at, phase),
    ]
    with pytest.raises(Interrupted):
        trained(config, folder, recorders=recorders, stop=stop)


def newest(folder: Path) -> VerifiedCheckpoint:
    return read_checkpoint(find_resumable(folder)[0])


def rows_of(config: RunConfig, saved: VerifiedCheckpoint) -> ReplayBuffer:
    effective = effective_settings(config)
    spec = env_factory(effective).spec
    goal_rewards = build_goal_rewards(effective)
    buffer = build_replay_buffer(effective, spec, goal_rewards=goal_rewards)
    buffer.load_state_dict(saved.run["replay_buffer"])
    saved.load_rows(buffer)
    return buffer


def stored(buffer: ReplayBuffer) -> Transitions:
    if isinstance(buffer, RolloutStore):
        return buffer.rollout()
    return buffer.rows(np.arange(len(buffer)))


def plain(value: Any) -> Any:
    """Returns the value without entries that depend on the clock, and with arrays as bytes."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if key not in NOT_OF_THE_RUN}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    return value


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """Returns all rows without rates and times."""
    return [
        {
            name: value
            for name, value in row.items()
            if "per_sec" not in name and not name.startswith("time")
        }
        for row in read_metrics(folder / "metrics.jsonl")
    ]


def assert_equal(config: RunConfig, one: Path, other: Path) -> None:
    assert_equal_checkpoints(config, one, other)
    assert metrics_of(one) == metrics_of(other)
    assert len(metrics_of(one)) >= WHOLE // 50


def assert_equal_checkpoints(config: RunConfig, one: Path, other: Path) -> None:
    first, second = newest(one), newest(other)
    assert first.opt_steps == second.opt_steps == WHOLE
    assert plain(first.counters) == plain(second.counters)
    assert plain(load_state(first.folder / "agent.npz")) == plain(
        load_state(second.folder / "agent.npz")
    )
    assert plain(first.run) == plain(second.run)
    rows, others = stored(rows_of(config, first)), stored(rows_of(config, second))
    assert plain(columns_of(rows)) == plain(columns_of(others))


@pytest.fixture(autouse=True, scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("datasets")
    with datasets_in(folder):
        write_cartpole(CARTPOLE)
        yield folder


RAINBOW = DqnConfig(
    hidden=[8],
    batch_size=8,
    double=True,
    dueling=True,
    noisy=True,
    exploration=Exploration.greedy,
    num_atoms=5,
)
DIVIDING = DqnConfig(hidden=[16], batch_size=16, gamma=0.9, normalize_reward=True)
# 18 updates per rollout: cuts and checkpoints fall within epochs, some at their ends.
ROLLOUTS: dict[str, Any] = {
    "agent": PpoConfig(hidden=[16], batch_size=16),
    "env": GymConfig(id="CartPole-v1", num_envs=3, max_episode_steps=60),
    "replay_buffer": RolloutConfig(n_steps=16, n_epochs=3),
    "step_processor": NStepConfig(),
}
NORMALISED = PpoConfig(
    hidden=[16],
    batch_size=16,
    normalize_obs=True,
    normalize_reward=True,
    target_kl=0.003,
    learning_rate={"initial": 1e-2, "final": 0.0, "steps": 4_000},
)
BOX = ROLLOUTS | {"agent": NORMALISED, "env": GymConfig(id="Pendulum-v1", max_episode_steps=60)}
GSDE = BOX | {
    "agent": replace(NORMALISED, exploration=OnPolicyExploration.gsde, sample_freq=5),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("sync", {}),
    "sync, one step, prioritized": (
        "sync",
        {"step_processor": NStepConfig(), "replay_buffer": PrioritizedConfig(capacity=300)},
    ),
    "serial": ("serial", {}),
    "serial, three environments each": (
        "serial",
        {
            "env": GymConfig(
                id="CartPole-v1", num_envs=3, max_episode_steps=60, vectorization=Vectorization.sync
            )
        },
    ),
    "serial, an environment with a vector implementation": ("serial", {"env": TWO_CARTPOLES}),
    "serial, ape_x": (
        "serial",
        {"actor_manager": SerialConfig(num_actors=3, n_buffer=40, exploration="ape_x")},
    ),
    "random": ("serial", {"agent": RandomConfig(batch_size=8)}),
    "sync, rainbow": (
        "sync",
        {"agent": RAINBOW, "replay_buffer": PrioritizedConfig(capacity=300)},
    ),
    "offline": ("offline", {"replay_buffer": DatasetConfig(dataset=CARTPOLE)}),
    "sync, a data set and rows of actors": (
        "sync",
        {"replay_buffer": DatasetConfig(dataset=CARTPOLE, capacity=150)},
    ),
    "serial, a data set and rows of actors": (
        "serial",
        {"replay_buffer": DatasetConfig(dataset=CARTPOLE, capacity=1_000)},
    ),
    "sync, prioritized, a share of a data set": (
        "sync",
        {
            "replay_buffer": PrioritizedConfig(
                dataset=CARTPOLE, dataset_share=0.3, capacity=150, normalize=Normalize.buffer
            )
        },
    ),
    "offline, prioritized": ("offline", {"replay_buffer": PrioritizedConfig(dataset=CARTPOLE)}),
    "td3, noise that lasts": (
        "serial",
        {
            "agent": Td3Config(hidden=[16], batch_size=16),
            "env": GymConfig(id="Pendulum-v1", max_episode_steps=60),
            "actor_manager": SerialConfig(
                num_actors=2,
                exploration=[0.3, {"noise": Noise.ornstein_uhlenbeck, "noise_std": 0.1}],
            ),
        },
    ),
    "redq and droq in one": (
        "sync",
        {
            "agent": SacConfig(
                hidden=[16],
                batch_size=16,
                num_critics=3,
                subset=2,
                dropout=0.1,
                critic_layer_norm=True,
                policy_delay=4,
                normalize_obs=True,
            ),
            "env": GymConfig(id="Pendulum-v1", max_episode_steps=60),
        },
    ),
    "iql, a data set": (
        "offline",
        {
            "agent": IqlConfig(hidden=[16], batch_size=16, normalize_obs=True),
            "replay_buffer": DatasetConfig(dataset=CARTPOLE),
        },
    ),
    "serial, rewards divided": (
        "serial",
        {
            "agent": DIVIDING,
            "env": GymConfig(
                id="CartPole-v1", num_envs=3, max_episode_steps=60, vectorization=Vectorization.sync
            ),
        },
    ),
    "sync, rewards divided": ("sync", {"agent": DIVIDING}),
    "serial, draws from global generators": (
        "serial",
        {"env": GymConfig(id=GUESS, num_envs=2, own_generators=True)},
    ),
    "rollouts": ("rollouts", ROLLOUTS),
    "rollouts, a Box, normalised, a limit of the divergence": (
        "rollouts",
        BOX,
    ),
    "serial, hindsight": (
        "serial",
        {
            "agent": SacConfig(hidden=[8], batch_size=16),
            "env": GymConfig(id="border/Stop-v0", num_envs=2),
            "replay_buffer": HindsightConfig(capacity=250),
            "step_processor": NStepConfig(),
        },
    ),
}


USUAL = {  # variants that run by default
    *("sync", "offline", "sync, prioritized, a share of a data set", "td3, noise that lasts"),
    "rollouts, a Box, normalised, a limit of the divergence",
}


CUTS = (137, 200, 300)  # 137: at no interval; 200: at all but save_interval; 300: at all


@pytest.mark.parametrize("variant", chosen([*VARIANTS], USUAL))
def test_stopping_and_resuming_changes_nothing(variant: str, tmp_path: Path) -> None:
    kind, changes = VARIANTS[variant]
    whole = config_of(kind, **changes)
    trained(whole, tmp_path / "whole")
    for cut in (*CUTS, WHOLE):
        config = config_of(kind, updates=cut, **changes)
        trained(config, tmp_path / "cut", resume=cut != CUTS[0])
    assert_equal(whole, tmp_path / "whole", tmp_path / "cut")


SCHEDULED = {
    "replay_buffer": PrioritizedConfig(capacity=300, beta={"steps": None})
}  # until the end of the run


@pytest.mark.parametrize(
    ("kind", "phase", "changes"),
    sampled(
        [
            ("sync", None, SCHEDULED),
            *[("sync", "evaluating", {}), ("sync", "warm-up", {})],
            *[("serial", "evaluating", {}), ("serial", None, {}), ("serial", "warm-up", {})],
            *[("rollouts", None, ROLLOUTS), ("rollouts", "collecting", ROLLOUTS)],
        ],
        every=3,
    ),
)
def test_an_interruption_and_a_resume_change_nothing(
    kind: str,
    phase: str | None,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollouts, "WAIT_S", 0.0)  # shows `collecting` after each step
    config = config_of(kind, **changes)
    trained(config, tmp_path / "whole")
    at = 0 if phase in ("warm-up", "collecting") else 190
    interrupt(config, tmp_path / "cut", at, phase)
    assert newest(tmp_path / "cut").opt_steps < WHOLE
    trained(config, tmp_path / "cut", resume=True)
    assert_equal(config, tmp_path / "whole", tmp_path / "cut")


class StopsAtCheck(StopFlag):
    """Requests a stop at its `at`-th check; the learner checks every step, also in evaluations."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__()
        self._at, self.checks = at, 0

    def check(self) -> None:
        self.checks += 1
        if self.checks == self._at:
            self.request(Interrupted(2))
        super().check()


def cut_ten_times(config: RunConfig, folder: Path, checks: int) -> None:
    """Runs to the end with ten interruptions, at random checks of the stop flag."""
    moments = sorted(random.Random(58).sample(range(2, checks), 10))
    for previous, moment in pairwise([0, *moments]):
        with pytest.raises(Interrupted):
            trained(config, folder, resume=previous > 0, stop=StopsAtCheck(moment - previous))
    trained(config, folder, resume=True)


@pytest.mark.parametrize(
    ("kind", "changes"),
    sampled([("rollouts", ROLLOUTS), ("rollouts", BOX), ("rollouts", GSDE), ("sync", {})], every=3),
)
def test_ten_interruptions_at_random_moments_change_nothing(
    kind: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moments fall into collecting, the epochs of a rollout, and evaluations."""
    config = config_of(kind, **changes)
    trained(config, tmp_path / "rollouts at once")
    monkeypatch.setattr(rollouts, "WAIT_S", 0.0)  # checks after each step of the actors
    whole = StopsAtCheck()
    trained(config, tmp_path / "whole", stop=whole)
    cut_ten_times(config, tmp_path / "cut", whole.checks)
    assert_equal(config, tmp_path / "whole", tmp_path / "cut")
    assert_equal(config, tmp_path / "whole", tmp_path / "rollouts at once")


PENDULUM = GymConfig(id="Pendulum-v1", max_episode_steps=60)
IN_LOCKSTEP: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("sync", {}),
    "ppo": ("rollouts", ROLLOUTS),
    "sac": ("sync", {"agent": SacConfig(hidden=[8], batch_size=16), "env": PENDULUM}),
    "rainbow": ("sync", {"agent": RAINBOW, "replay_buffer": PrioritizedConfig(capacity=300)}),
    "hindsight": (
        "sync",
        {
            "agent": SacConfig(hidden=[8], batch_size=16),
            "env": GymConfig(id="border/Stop-v0"),
            "replay_buffer": HindsightConfig(capacity=250),
            "step_processor": NStepConfig(),
        },
    ),
    "ppo, a Box, normalised": ("rollouts", BOX),
    "ppo, gSDE": ("rollouts", GSDE),
    "ppo, masked": (
        "rollouts",
        ROLLOUTS | {"env": GymConfig(id="masked/Strict-v0", action_mask=True)},
    ),
    "global generators": ("sync", {"env": GymConfig(id=GUESS, own_generators=True)}),
}
PARALLEL = {"thread": ThreadConfig, "process": ProcessConfig}


def in_lockstep(variant: str, actors: int, envs: int) -> dict[str, RunConfig]:
    """Returns the settings of one run with serial actors, threads and processes."""
    kind, changes = IN_LOCKSTEP[variant]
    serial = config_of(kind, **changes)
    env = replace(serial.env, num_envs=envs, vectorization=Vectorization.sync)
    managers = {"serial": SerialConfig, **PARALLEL}
    return {
        name: replace(
            serial, env=env, imports=["masked", "global_draws"],
            actor_manager=manager(num_actors=actors, n_buffer=7),
        )
        for name, manager in managers.items()
    }  # fmt: skip


def slow_variants(*values: tuple[Any, ...]) -> list[ParameterSet]:
    """Returns variants that do not run by default, with each of the values in turn."""
    variants = thinned([name for name in IN_LOCKSTEP if name not in ("dqn", "ppo")], 8)
    return [
        pytest.param(variant, *chosen_values, marks=pytest.mark.slow)
        for variant, chosen_values in zip(variants, cycle(values))
    ]


@pytest.mark.parametrize(
    ("variant", "actors", "envs"),
    [
        *(("dqn", 2, 4), ("ppo", 2, 4), ("ppo, masked", 2, 4)),
        *slow_variants((4, 2), (2, 4)),
    ],
)
def test_actors_in_lockstep_repeat_serial_actors(
    variant: str, actors: int, envs: int, tmp_path: Path
) -> None:
    runs = in_lockstep(variant, actors, envs)
    for name, config in runs.items():
        trained(config, tmp_path / name)
    for name in PARALLEL:
        assert_equal(runs["serial"], tmp_path / "serial", tmp_path / name)


@pytest.mark.parametrize(
    ("variant", "manager"),
    [
        *(("dqn", "thread"), ("dqn", "process"), ("ppo", "thread"), ("ppo", "process")),
        *slow_variants(("thread",), ("process",)),
    ],
)
def test_ten_interruptions_in_lockstep_change_nothing(
    variant: str, manager: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "WAIT_S", 0.0)  # checks after each step of the actors
    runs, whole = in_lockstep(variant, 2, 2), StopsAtCheck()
    trained(runs["serial"], tmp_path / "whole", stop=whole)
    cut_ten_times(runs[manager], tmp_path / "cut", whole.checks)
    assert_equal(runs["serial"], tmp_path / "whole", tmp_path / "cut")


def test_actors_act_with_the_weights_that_they_begin_with(tmp_path: Path) -> None:
    offline = config_of("offline", updates=20, replay_buffer=DatasetConfig(dataset=CARTPOLE))
    trained(offline, tmp_path / "offline")
    calm = DqnConfig(hidden=[16], batch_size=16, epsilon=0.0)
    config = config_of(
        "serial", updates=1, agent=calm, replay_buffer=DatasetConfig(dataset=CARTPOLE)
    )

    def greedy_share(folder: str, **begins: str) -> float:
        """Returns the fraction of warm-up actions that are greedy for the offline weights."""
        started = replace(config, **begins)
        trained(started, tmp_path / folder)
        buffer = rows_of(started, newest(tmp_path / folder))
        first = len(buffer) - buffer.ring.pushed  # the rows of the data set come first
        rows = buffer.rows(np.arange(first, first + 100))
        return float(np.mean(policy.act(rows.obs, explore=False) == rows.action))

    agent = build_agent(effective_settings(offline), env_factory(effective_settings(offline)).spec)
    latest = tmp_path / "offline" / "checkpoints" / "latest"
    agent.load_state_dict(load_state(latest / "agent.npz"))
    policy = evaluation_policy(effective_settings(offline), agent)
    policy.load_snapshot(agent.snapshot())
    assert greedy_share("trained", init_from=str(latest)) == 1.0
    assert greedy_share("untrained") < 0.9


def test_saving_never_changes_training(tmp_path: Path) -> None:
    config = config_of("serial")
    often = replace(config, trainer=replace(config.trainer, save_interval=7))
    trained(config, tmp_path / "seldom")
    trained(often, tmp_path / "often")
    assert_equal(config, tmp_path / "seldom", tmp_path / "often")


@pytest.mark.parametrize(
    ("first", "second"),
    sampled(
        [
            *(("thread", "thread"), ("process", "process"), ("thread", "process")),
            *(("process", "serial"), ("serial", "thread")),
        ],
        every=3,
    ),
)
def test_actors_beside_the_learner_go_on_with_exact_counters(
    first: str, second: str, tmp_path: Path
) -> None:
    trained(config_of(first, updates=200), tmp_path / "run")
    after = trained(config_of(second), tmp_path / "run", resume=True)
    stats = after.trainer_stats
    assert stats.opt_steps == WHOLE
    assert sum(actor.samples for actor in after.actor_stats) == stats.samples_total
    assert stats.samples_total >= 100 + WHOLE - 1  # needed for the last update
    assert stats.samples_total <= WHOLE + 100 + 2 * 2 * 7 + 2 * 3 * 2  # slack, n-step windows
    if first == "serial":  # threads lose the samples in the proxies of serial actors
        assert sum(actor.lost_samples for actor in after.actor_stats) < 2 * 7
    else:
        for actor in after.actor_stats:
            assert (actor.restarted_episodes, actor.restarts, actor.lost_samples) == (0, 0, 0)
    steps = [row["opt_steps"] for row in metrics_of(tmp_path / "run") if "eval/return" in row]
    assert steps == [100, 200, 300, 400]


@pytest.mark.parametrize("kind", sampled(["sync", "process"], every=2))
def test_the_return_of_every_env_step_is_in_the_statistics_once(kind: str, tmp_path: Path) -> None:
    """Also after a resume, and for steps that wait in an n-step window."""
    changes: dict[str, Any] = {"agent": DIVIDING, "env": TWO_CARTPOLES}
    for updates in (200, WHOLE):
        trained(
            config_of(kind, updates=updates, **changes), tmp_path / "run", resume=updates == WHOLE
        )
        saved = newest(tmp_path / "run")
        statistics = load_state(saved.folder / "agent.npz")["statistics"]
        assert statistics["returns.count"] == saved.counters["env_steps"] >= updates
        # CartPole pays 1 per step, so a return lies between 1 and 1 / (1 - gamma).
        assert 1 < statistics["returns.mean"] < 10


def test_without_its_rows_a_run_fills_its_replay_buffer_again_first(tmp_path: Path) -> None:
    settings = CheckpointConfig(replay_buffer=False)
    first = trained(config_of("thread", updates=200, checkpoint=settings), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints" / "replay").exists()
    result = trained(config_of("thread", checkpoint=settings), tmp_path / "run", resume=True)
    assert result.trainer_stats.opt_steps == WHOLE
    assert result.trainer_stats.samples_total >= first.trainer_stats.samples_total + 100 + 200


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(config_of(updates=350), tmp_path / "run")
    caplog.set_level("INFO")
    newest_folder, before = find_resumable(tmp_path / "run")[:2]
    path = newest_folder / "agent.npz"
    path.write_bytes(path.read_bytes()[:-10])
    trained(config_of(), tmp_path / "run", resume=True)
    assert f"{path} is damaged" in caplog.text
    assert f"resumed from {before}" in caplog.text
    assert newest(tmp_path / "run").opt_steps == WHOLE


def test_rows_that_are_gone_are_named_and_need_not_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trained(config_of(updates=200), folder)
    for chunk in (folder / "checkpoints" / "replay").iterdir():
        chunk.unlink()
    with pytest.raises(CheckpointError, match=r"(?s)\.npy is missing.*replay_buffer=false"):
        trained(config_of(), folder, resume=True)
    config = config_of(updates=220, checkpoint=CheckpointConfig(replay_buffer=False))
    assert trained(config, folder, resume=True).trainer_stats.opt_steps == 220


def test_the_best_score_of_a_lost_stretch_stays_the_best(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = trained(config_of(updates=350), folder)
    assert math.isfinite(first.best_score)
    for checkpoint in find_resumable(folder)[:-1]:
        shutil.rmtree(checkpoint)
    resumed = trained(config_of(updates=151), folder, resume=True)
    assert resumed.best_score >= first.best_score
    assert resumed.trainer_stats.evaluations < first.trainer_stats.evaluations


def test_weights_of_another_run_are_where_a_new_one_begins(tmp_path: Path) -> None:
    trained(config_of(updates=200), tmp_path / "first")
    result = trained(config_of(updates=1, init_from=str(tmp_path / "first")), tmp_path / "b")
    learned = load_state(tmp_path / "first" / "best" / "agent.npz")["online"]
    for name, weights in result.agent.state_dict()["online"].items():
        assert np.abs(weights - learned[name]).max() < 2e-3  # one step of Adam


@pytest.mark.parametrize("phase", [None, "stopping"])
@pytest.mark.parametrize("what", chosen(["checkpoints", "."], ["checkpoints"]))
def test_what_is_moved_or_deleted_during_a_run_ends_it_and_is_not_made_again(
    what: str, phase: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def move() -> None:
        if (folder / what).exists():
            (folder / what).rename(tmp_path / "moved")

    moves = ActsAt(move, 200 if phase is None else 0, phase)
    recorders = [*build_recorders(effective_settings(config_of()), folder, None), moves]
    with pytest.raises(RunDeleted, match=f"^{folder / what} was deleted or moved"):
        trained(config_of(), folder, recorders=recorders)
    assert not (folder / what).exists()
    if folder.exists():
        assert read_run(folder)["status"] == "failed"
