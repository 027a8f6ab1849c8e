"""`border-tune`: a search for the hyperparameters of an agent in an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from border_cli.cli.flags import settings_parser
from border_cli.cli.plain_command import plain_command
from border_cli.config.check import settings_of
from border_cli.config.open_composer import open_composer
from border_cli.config.overrides import is_sweep, normalize_overrides, parse_overrides
from border_cli.errors import ConfigError
from border_cli.process.monitor import monitored
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import paused_garbage_collection
from border_cli.registry import GROUPS
from border_cli.settings.run import RunConfig
from border_cli.system.files import full_path
from border_cli.tune.config import TuneConfig
from border_cli.words import nearest, unknown

NAME = "border-tune"
OWN = {key.name: key.metadata["meaning"] for key in fields(TuneConfig)}
KEYS = "".join(f"  {name:<11}  {meaning}\n" for name, meaning in OWN.items())
HELP = f"""\
border-tune: searches for hyperparameters of an agent and resumes interrupted searches.

  border-tune study=DIR [KEY=VALUE …] [SETTING=VALUE …] [-cd DIR] [-cn NAME]

  border-tune agent=dqn env=acrobot study=my_study trials=50 jobs=2 seeds=3

A trial is a set of values from the search space of the agent (conf/search/dqn.yaml). It has one run
per seed, in my_study/trial-0012/seed-0, seed-1, … Trials pause at budgets: those that are unlikely
to become the best are pruned, the others resume from their checkpoints. The same command resumes a
study, also on other machines that share its directory and storage.

KEYS of border-tune, in addition to the settings of every run (border-train --help)

{KEYS}"""
RUN_SETTINGS = (*GROUPS, *(key.name for key in fields(RunConfig) if key.name != "dry_run"))
REFUSED = {
    "seed": "seeds=N trains each trial with the seeds 0 to N - 1",
    "run_dir": "study=DIR sets the directory",
    "resume": "the same command resumes a study",
    "quiet": "only border-train has it",
}


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    options = settings_parser(NAME).parse_intermixed_args(typed)
    config, rest = split(normalize_overrides(options.overrides))
    words = [word for word in typed if not word.startswith("storage=")]  # may hold a password
    composition = open_composer(
        rest, config_dirs=options.config_dirs, config_name=options.config_name
    )
    with paused_garbage_collection(), composition as (composer, overrides):
        # imported late: Optuna and torch, which --help and refusals do not need
        from border_cli.tune.store import import_optuna

        import_optuna()
        from border_cli.sweep.server import start_server

        start_server()
        from border_cli.tune.command import tune

        tune(composer, overrides, config, (NAME, *words))


def split(typed: Sequence[str]) -> tuple[TuneConfig, list[str]]:
    """Splits the overrides into the checked settings of border-tune and those of every run."""
    tune_overrides, run_overrides = [], []
    for text, override in zip(typed, parse_overrides(typed), strict=True):
        key = override.key_or_group
        if key in REFUSED:
            raise ConfigError(f"{text}: not in border-tune: {REFUSED[key]}")
        if is_sweep(text):
            raise ConfigError(f"{text} has several values: border-tune chooses values itself")
        if key not in RUN_SETTINGS and nearest(key, OWN, cutoff=0.8) not in (None, key):
            raise ConfigError(unknown("setting", key, OWN))
        if key in OWN:
            tune_overrides.append(override)
        else:
            run_overrides.append(text)
    config = settings_of(TuneConfig, tune_overrides)
    if not config.study:
        raise ConfigError(f"study=DIR is missing: the directory of the study ({NAME} --help)")
    config.study = str(full_path(Path(config.study)))
    return config, run_overrides


main = partial(plain_command, NAME, HELP, _run)
command = monitored(NAME)(main)  # entry point of the console script


if __name__ == "__main__":
    command()
