"""The Python interface for training and for loading agents; see also `config.compose`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from border_cli.checks.check import check_jobs
from border_cli.checks.dry_build import dry_build_jobs
from border_cli.config.check import check_settings
from border_cli.config.job import Job, modules_of
from border_cli.config.open_composer import open_composer
from border_cli.config.saved import load_resolved, run_import_path
from border_cli.config.search_path import homes, import_modules, user_folders
from border_cli.core.callback import Callback
from border_cli.core.interfaces import Agent, Evaluator
from border_cli.core.loaded_policy import LoadedPolicy
from border_cli.core.output import Recorders
from border_cli.core.spaces import EnvSpec
from border_cli.core.state import load_state
from border_cli.dataset.recorded_episodes import refuse_other_spaces
from border_cli.env.python_env import MakeEnv, is_local, with_python_env
from border_cli.errors import CheckpointError, ConfigError, os_errors_as
from border_cli.launch.build import build_agent, env_factory, evaluation_policy
from border_cli.launch.effective import EffectiveSettings, effective_settings
from border_cli.launch.run import RunOptions, run_job
from border_cli.launch.summary import Result as Result
from border_cli.registry import register_builtin
from border_cli.run.exported import open_export
from border_cli.run.finding import find_checkpoint, find_run, read_model
from border_cli.run.manifest import read_json
from border_cli.run.run_folder import RunFolder
from border_cli.run.spec import read_spec
from border_cli.run.status import EPISODE_LIMIT
from border_cli.settings.run import AUTO, RunConfig
from border_cli.system.files import expand_user, is_exported
from border_cli.system.start import refuse_while_imported_by_a_child
from border_cli.trainer.callbacks import name_callbacks
from border_cli.words import format_override


def train(
    config: RunConfig,
    *,
    recorders: Recorders | None = None,
    callbacks: Sequence[Callback] | None = None,
    evaluator: Evaluator | None = None,
    env: MakeEnv | None = None,
) -> Result:
    """Trains like `border-train`, and returns the trained agent and its statistics.

    `recorders`, `callbacks` and `evaluator` replace those of the config; an empty list disables
    recording. The run directory is `config.run_dir`, by default a new one below `outputs`.
    `config.resume` continues the run in a directory, in place of `run_dir`; `auto` continues the
    run in `run_dir`, or starts it if there is none. Blocks until the run ends. Raises ConfigError
    before anything is written, CheckpointError if `init_from` does not fit or all checkpoints of
    the run are damaged, and RunFailed if the run cannot continue.

    `env` replaces `env.id`: it is called with `env.kwargs` to create each environment. It must be
    picklable if actors run in processes or evaluations in the background.

    The settings are checked again, because a caller may have changed them since `compose`.
    """
    refuse_while_imported_by_a_child()
    config = check_settings(
        config if env is None else replace(config, env=with_python_env(config.env, env))
    )
    config.check_actors()
    if evaluator is not None:  # a caller's evaluator runs in this process
        config = replace(config, evaluator=replace(config.evaluator, background=False))
    register_builtin()
    user_folders()  # calls the installed plug-ins, because the config may name their components
    import_modules(config.imports)
    if is_local(config.env.id):
        config = _without_pickling(config)
    if config.dry_run:
        raise ConfigError("dry_run=true is for the command line; train() does not support it")
    job = Job(
        folder=_run_dir(config),
        config=config,
        command=("border_cli.train",),
        import_paths=tuple(homes(modules_of(config))),
    )
    check_jobs([job])
    options = RunOptions(
        recorders=recorders,
        callbacks=None if callbacks is None else name_callbacks(callbacks),
        evaluator=evaluator,
        finished_too=True,
    )
    result = run_job(dry_build_jobs([job]).jobs[0], options)
    assert isinstance(result, Result)
    return result


def resume(
    run_dir: str | Path,
    *overrides: str,
    recorders: Recorders | None = None,
    callbacks: Sequence[Callback] | None = None,
    evaluator: Evaluator | None = None,
    env: MakeEnv | None = None,
    trust: bool = False,
) -> Result:
    """Resumes a run like `border-train resume=RUN_DIR OVERRIDES`; see `train`.

    Modules named by the run are imported as in `load_policy`.
    """
    folder = expand_user(run_dir).absolute()
    arguments = [
        format_override("resume", str(folder)),
        *overrides,
        *(["trust=true"] if trust else []),
    ]
    unused = {"env.id"} if env else set[str]()
    with ExitStack() as stack:
        with os_errors_as(CheckpointError):
            composer, job_overrides = stack.enter_context(open_composer(arguments, unused=unused))
            config = composer.job(job_overrides).config
        config = replace(config, run_dir=None, resume=str(folder))
        return train(config, recorders=recorders, callbacks=callbacks, evaluator=evaluator, env=env)


def _without_pickling(config: RunConfig) -> RunConfig:
    """Returns settings under which the environment is never pickled.

    Raises ConfigError if actors or evaluator need a picklable environment.
    """
    effective = effective_settings(config)
    pickling_setting = "evaluator.background=true" if config.evaluator.background else None
    if not (effective.actors.in_learner_thread or effective.backend == "thread"):
        pickling_setting = f"actor_manager={effective.backend}"
    if pickling_setting is not None:
        raise ConfigError(
            f"{pickling_setting} needs an env that can be pickled, such as a function at the "
            "top level of a module; actor_manager=thread accepts any env"
        )
    return replace(config, evaluator=replace(config.evaluator, background=False))


def _run_dir(config: RunConfig) -> Path:
    """Returns the run directory; a new one below `outputs` if the config has none."""
    path = config.run_dir if config.resume in (None, AUTO) else config.resume
    if path is None:
        path = f"outputs/{config.name}/{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
    return expand_user(path).absolute()


def policy_of_run(
    run_dir: Path, checkpoint: str | int | None, *, env: MakeEnv | None, trust: bool
) -> LoadedPolicy:
    """Loads the policy of a run, see `load_policy`."""
    requested = None if checkpoint is None else str(checkpoint)
    folder, name = find_run(run_dir, requested)
    with os_errors_as(CheckpointError):
        spec = read_spec(folder) if env is None else None
    with run_import_path(folder, trust=trust):
        effective, agent, _ = load_agent(folder, name or "best", env=env, spec=spec, trust=trust)
        policy = evaluation_policy(effective, agent)
        return LoadedPolicy(policy.act, spec or env_factory(effective).spec)


@os_errors_as(CheckpointError)
def load_agent(
    run_dir: Path,
    checkpoint: str,
    *,
    env: MakeEnv | None = None,
    spec: EnvSpec | None = None,
    config: RunConfig | None = None,
    trust: bool = False,
) -> tuple[EffectiveSettings, Agent, dict[str, Any]]:
    """Loads the settings, the agent and the counters of a run or an exported policy.

    With `spec` the environment is not constructed, and its modules are not needed. `config`
    replaces the saved settings.
    """
    register_builtin()
    config = config or read_config(run_dir, trust=trust, plays=spec is None and env is None)
    if env is not None:
        config = replace(config, env=with_python_env(config.env, env))
    trained = read_spec(run_dir)
    effective = effective_settings(with_episode_limit(config, run_dir))
    folder = open_export(run_dir) if is_exported(run_dir) else None
    if folder is None:
        find_checkpoint(run_dir, checkpoint)  # raises before anything is built
    spec = spec or env_factory(effective).spec
    if trained is not None:
        refuse_other_spaces(
            "the policy of env.id", trained.id, trained.observation, trained.action, spec
        )
    agent = build_agent(effective, spec, learns=False)
    if folder is not None:
        agent.load_weights(folder.weights())
        return effective, agent, {"opt_steps": folder.content["opt_steps"]}
    _, (state, counters) = read_model(
        lambda: find_checkpoint(run_dir, checkpoint),
        lambda folder: (load_state(folder / "agent.npz"), read_json(folder / "state.json")),
    )
    agent.load_state_dict(state)
    return effective, agent, counters


def with_episode_limit(config: RunConfig, run_dir: Path) -> RunConfig:
    """Returns the settings with the episode limit that the run determined for its evaluations,
    unless the settings have one."""
    trained = read_spec(run_dir)
    if is_exported(run_dir):
        limit = open_export(run_dir).content.get(EPISODE_LIMIT)
    else:
        limit = RunFolder(run_dir).episode_limit
    if type(limit) is not int or limit < 1 or trained is None or trained.id != config.env.id:
        return config
    evaluator = config.evaluator
    env_limit = evaluator.env.get("max_episode_steps", config.env.max_episode_steps)
    if evaluator.max_episode_steps is not None or env_limit is not None:
        return config
    return replace(config, evaluator=replace(config.evaluator, max_episode_steps=limit))


@os_errors_as(CheckpointError)
def read_config(run_dir: Path, *, trust: bool = False, plays: bool = True) -> RunConfig:
    """Reads the saved settings of a run and imports the modules they name, see `load_policy`."""
    return load_resolved(run_dir, trust=trust, plays=plays)
