"""`border-tune`: a search for the hyperparameters of an agent on an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from border_cli.cli.flags import settings_parser
from border_cli.cli.plain_command import plain_command
from border_cli.config.beginning import composing
from border_cli.config.check import settings_of
from border_cli.config.overrides import is_sweep, normalized, parsed
from border_cli.errors import ConfigError
from border_cli.process.monitor import monitored
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import not_collecting
from border_cli.registry import GROUPS
from border_cli.settings.run import RunConfig
from border_cli.system.files import full_path
from border_cli.tune.config import TuneConfig
from border_cli.words import nearest, unknown

NAME = "border-tune"
OWN = {each.name: each.metadata["meaning"] for each in fields(TuneConfig)}
KEYS = "".join(f"  {name:<11}  {meaning}\n" for name, meaning in OWN.items())
HELP = f"""\
border-tune: searches the hyperparameters of an agent, and resumes a search that was stopped.

  border-tune study=DIR [KEY=VALUE …] [SETTING=VALUE …] [-cd DIR] [-cn NAME]

  border-tune agent=dqn env=acrobot study=my_study trials=50 jobs=2 seeds=3

A trial is a set of values that the space of the agent allows (conf/search/dqn.yaml). Its runs, one
for each seed, are in my_study/trial-0012/seed-0 and so on. Trials wait at budgets, where those are
pruned that cannot be the best any more; the others resume from their checkpoints. The same command
continues a study, also from other machines that share its directory and storage.

KEYS of border-tune; all other settings are those of every run (border-train --help)

{KEYS}"""
OF_RUNS = (*GROUPS, *(each.name for each in fields(RunConfig) if each.name != "dry_run"))
REFUSED = {
    "seed": "seeds=N trains each trial with the seeds 0 to N - 1",
    "run_dir": "study=DIR is the directory",
    "resume": "the same command resumes a study",
    "quiet": "it is for border-train",
}


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    asked = settings_parser(NAME).parse_intermixed_args(typed)
    config, rest = split(normalized(asked.overrides))
    kept = [each for each in typed if not each.startswith("storage=")]  # has passwords
    composed = composing(rest, config_dirs=asked.config_dirs, config_name=asked.config_name)
    with not_collecting(), composed as (composer, overrides):
        # imported late: Optuna and torch, which --help and refusals do not need
        from border_cli.tune.store import imported_optuna

        imported_optuna()
        from border_cli.sweep.server import server

        server()
        from border_cli.tune.command import tune

        tune(composer, overrides, config, (NAME, *kept))


def split(typed: Sequence[str]) -> tuple[TuneConfig, list[str]]:
    """The settings of the command itself, checked, and those of every run."""
    own, rest = [], []
    for text, override in zip(typed, parsed(typed), strict=True):
        key = override.key_or_group
        if key in REFUSED:
            raise ConfigError(f"{text}: not in border-tune: {REFUSED[key]}")
        if is_sweep(text):
            raise ConfigError(f"{text} has several values: border-tune takes those of its space")
        if key not in OF_RUNS and nearest(key, OWN, cutoff=0.8) not in (None, key):
            raise ConfigError(unknown("setting", key, OWN))
        if key in OWN:
            own.append(override)
        else:
            rest.append(text)
    config = settings_of(TuneConfig, own)
    if not config.study:
        raise ConfigError(f"study=DIR is missing: the directory of the study ({NAME} --help)")
    config.study = str(full_path(Path(config.study)))
    return config, rest


main = partial(plain_command, NAME, HELP, _run)
command = monitored(NAME)(main)  # the console script


if __name__ == "__main__":
    command()
