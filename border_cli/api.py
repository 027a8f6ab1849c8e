"""Training and acting from Python; `compose` stands in `config.compose`."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from border_cli.assemble import rehearse, thread_budget
from border_cli.config.frozen import load_resolved, resolved_yaml, write_resolved
from border_cli.config.imports import import_modules
from border_cli.config.search_path import user_folders
from border_cli.core.config import RunConfig
from border_cli.core.errors import CheckpointError, ConfigError
from border_cli.core.interfaces import Agent, Evaluator, Policy, Translator
from border_cli.core.output import Recorders
from border_cli.launch import Launch, Result, launch
from border_cli.nn.saving import load_state
from border_cli.parts import build_agent, env_factory, evaluation_policy
from border_cli.process.start import refuse_while_imported_by_a_child
from border_cli.registry import register_builtin
from border_cli.run.reading import find_checkpoint, verify

log = logging.getLogger(__name__)

__all__ = ["Result", "load_agent", "load_policy", "train"]


def train(
    config: RunConfig,
    *,
    recorders: Recorders | None = None,
    evaluator: Evaluator | None = None,
) -> Result:
    """Trains as `border-train` would, and returns the trained agent with its statistics.

    `recorders` and `evaluator` replace those of the config; an empty list records nothing. The run
    directory is `config.run_dir`, else a new one below `outputs`. Raises ConfigError before
    anything is written, RunFailed when the run cannot go on; blocks until the end.
    """
    refuse_while_imported_by_a_child()
    if evaluator is not None and config.evaluator.background:
        raise ConfigError(
            "evaluator.background must be false where `train` is given an evaluator, which stays "
            "in this process; got true"
        )
    register_builtin()
    user_folders()  # calls the installed plug-ins, whose components the config may name
    import_modules(config.imports)
    rehearse(config)
    log.info("threads: %s", thread_budget(config))
    run_dir = _new_run_dir(config)
    write_resolved(run_dir, resolved_yaml(config))
    facts = {"command": ["border_cli.train"], "import_paths": _homes(config.imports)}
    return launch(config, run_dir, Launch(recorders=recorders, evaluator=evaluator, facts=facts))


def _homes(modules: Sequence[str]) -> list[str]:
    """The folders in which a later process finds these modules, which are imported by now."""
    tops = [sys.modules[module.partition(".")[0]] for module in modules]
    places = [next(iter(getattr(top, "__path__", [])), top.__file__) for top in tops]
    return list(dict.fromkeys(str(Path(each).absolute().parent) for each in places if each))


def _new_run_dir(config: RunConfig) -> Path:
    if config.run_dir is not None:
        run_dir = Path(config.run_dir).expanduser().absolute()
        if (run_dir / "run.json").exists():
            raise ConfigError(f"run_dir={run_dir} holds a run already: choose another")
        if run_dir.exists() and not run_dir.is_dir():
            raise ConfigError(f"run_dir={run_dir} cannot be made: it is a file")
    else:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        run_dir = Path.cwd() / "outputs" / config.name / f"{stamp}-{int(now % 1 * 1e6):06d}"
    run_dir.mkdir(parents=True, exist_ok=config.run_dir is not None)
    return run_dir


class LoadedPolicy:
    """Acts greedily with a saved model; owned by the thread that calls it."""

    def __init__(self, policy: Policy, translator: Translator) -> None:
        self._policy = policy
        self._translator = translator

    def act(self, obs: Any) -> Any:
        """The action for one observation, both as the environment's own `step` has them."""
        row = self._translator.observation(obs)  # [1, …]
        return self._translator.action(self._policy.act(row, explore=False))


def load_policy(run_dir: str | Path, checkpoint: str = "best") -> LoadedPolicy:
    """The policy of a run: its best model, `latest`, or the checkpoint of an optimisation step.

    Raises CheckpointError where there is none, or where it is damaged.
    """
    config, agent = load_agent(Path(run_dir), checkpoint)
    policy = evaluation_policy(config, agent)
    policy.load_snapshot(agent.snapshot())
    return LoadedPolicy(policy, env_factory(config).translator())


def load_agent(run_dir: Path, checkpoint: str) -> tuple[RunConfig, Agent]:
    """The settings and the agent of a run as they were saved."""
    register_builtin()
    config = read_config(run_dir)
    folder = find_checkpoint(run_dir, checkpoint)
    verify(folder)
    agent = build_agent(config, env_factory(config).spec, learns=False)
    agent.load_state_dict(load_state(folder / "agent.pt"))
    return config, agent


def read_config(run_dir: Path) -> RunConfig:
    """The saved settings of a run; its own modules are imported again."""
    if not run_dir.is_dir():
        raise CheckpointError(f"{run_dir} is no folder")
    try:
        facts = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        facts = {}
    # The folder of today comes last: a module of the same name there is another one.
    return load_resolved(run_dir, [*facts.get("import_paths", []), str(Path.cwd())])
