"""`border-train --help`, built quickly from folders and dataclasses, without Hydra."""

from __future__ import annotations

import importlib.resources
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.resources.abc import Traversable

from border_cli.cli.flags import FLAGS
from border_cli.config.search_path import OURS, folder_of_url, user_folders
from border_cli.settings.run import RunConfig

HELP = """\
border-train [FLAGS] [GROUP=OPTION …] [SETTING=VALUE …]

Trains a reinforcement learning agent: actors collect transitions while a learner updates the agent.
A run directory holds checkpoints, the best model, the settings, a log and TensorBoard events.

GROUPS and their options (* marks the default)
{groups}

SETTINGS of every run (settings of an option: border-train agent=dqn --help)
{settings}

WITH resume=RUN_DIR or --from RUN_DIR, for this command only
  trust=true  also imports modules from the directories that the run recorded, and does not check
              its environment. Use it only for code that you trust; it is never saved or read from
              a file

FLAGS, in any position
{flags}
EXAMPLES
  border-train agent=dqn env=cartpole
      trains DQN on CartPole
  border-train agent=dqn --help
      lists the settings of agent=dqn with defaults and ranges
  border-train env=acrobot agent.gamma=0.95 --cfg job --resolve
      prints the complete configuration
  border-train env=cartpole 'recorder=[jsonl,console]'
      quote lists: zsh reports `no matches found` for unquoted brackets
  border-train -m env=cartpole,acrobot seed=0,1,2
      six runs, in parallel on two or more cores
  border-train recorder.tensorboard.step=env_steps …
      puts env steps on TensorBoard's x axis
  border-train -cd my_conf experiment=mine
      uses an experiment from your own config directory; border-init creates one
  border-train resume=RUN_DIR
      resumes an interrupted run
  border-train --from RUN_DIR seed=1
      starts a new run with the settings of another and a new seed
"""
LINE_WIDTH = 120
# Descriptions of the settings of every run, by name.
MEANINGS = {
    key.name: key.metadata["meaning"] for key in fields(RunConfig) if "meaning" in key.metadata
}
_DEFAULT = re.compile(r"^\s*- (?:optional )?(\w+): (.+)$", re.MULTILINE)


def overview(config_dirs: Sequence[str]) -> str:
    """Returns the text of `border-train --help`."""
    folders = config_folders(config_dirs)
    primary = folders[-1].joinpath("config.yaml").read_text(encoding="utf-8")
    groups = {}
    for group, default in _DEFAULT.findall(primary):
        defaults = re.findall(r"\w+", default)
        names = options_in(folders, group)
        groups[group] = ", ".join(f"{name}*" if name in defaults else name for name in names)
    return HELP.format(groups=_table(groups), settings=_table(MEANINGS), flags=FLAGS)


def config_folders(config_dirs: Sequence[str]) -> list[Traversable]:
    """Returns the config folders of the user and of plug-ins, followed by ours."""
    return [*map(folder_of_url, user_folders(config_dirs)), importlib.resources.files(OURS)]


def options_in(folders: Sequence[Traversable], group: str) -> list[str]:
    """Returns the sorted names of a group's options in these folders."""
    group_dirs = [folder.joinpath(group) for folder in folders]
    names = [
        file.name for group_dir in group_dirs if group_dir.is_dir() for file in group_dir.iterdir()
    ]
    return sorted({name[:-5] for name in names if name.endswith(".yaml")})


def _table(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(
        textwrap.fill(
            meaning,
            LINE_WIDTH,
            initial_indent=f"  {name:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
        for name, meaning in rows.items()
    )
