"""Additional columns of an agent reach its batches, also after crashes and a resume."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from border_cli import compose, resume, train
from border_cli.errors import ConfigError
from border_cli.settings.run import RunConfig
from tests.support.datasets import CARTPOLE, datasets_in, write_cartpole

SMALL = (
    *("agent=remembering", "imports=[remembering,unruly]", "run_dir=run", "recorder=[jsonl]"),
    *("agent.hidden=[4]", "agent.batch_size=16", "trainer.warmup_period=60", "~tuned"),
    *("actor_manager.num_actors=2", "actor_manager.n_buffer=7", "evaluator.num_episodes=1"),
    *("trainer.eval_interval=0", "trainer.record_interval=50"),
)


@pytest.fixture(autouse=True)
def conf(folder: Path, own_modules: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the agent's configuration file, and lets `imports` import its module again."""
    del own_modules
    monkeypatch.delitem(sys.modules, "remembering", raising=False)
    (folder / "conf" / "agent").mkdir(parents=True)
    file = folder / "conf" / "agent" / "remembering.yaml"
    file.write_text("defaults: [/schema/agent/remembering@_here_, _self_]\n")


def composed(*settings: str) -> RunConfig:
    return compose(*SMALL, *settings, config_dir="conf")


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("process", ("replay_buffer=prioritized",)),
        ("thread", ("step_processor=multi_step", "env.num_envs=3")),
        ("serial", ("step_processor=multi_step", "env.num_envs=3")),
    ],
)
def test_a_column_survives_actors_that_die_a_checkpoint_and_a_resume(
    backend: str, more: tuple[str, ...]
) -> None:
    deadly = ("env.id=Leaves-v0", "env.kwargs.at=100", "actor_manager.max_restarts=100")
    env = deadly if backend == "process" else ("env.id=Calm-v0",)
    manager = f"actor_manager={backend}"
    result = train(composed(*env, *more, manager, "trainer.max_opt_steps=150"))
    restarts = sum(stats.restarts for stats in result.actor_stats)
    assert (restarts > 0) == (backend == "process")
    resume("run", "trainer.max_opt_steps=300")
    import remembering

    assert remembering.Remembering.batches == 300


def test_a_data_set_without_the_column_is_refused_by_name(folder: Path) -> None:
    with datasets_in(folder):
        write_cartpole(CARTPOLE)
        config = composed("env=cartpole", f"replay_buffer.dataset={CARTPOLE}")
        with pytest.raises(ConfigError, match=f"{CARTPOLE} has no column sum, from which agent="):
            train(config)
