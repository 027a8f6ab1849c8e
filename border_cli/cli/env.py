"""`border-env`: shows what border_cli understands of an environment."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial

from border_cli.cli.flags import settings_parser
from border_cli.cli.plain_command import plain_command
from border_cli.config.open_composer import open_composer
from border_cli.config.overrides import normalize_overrides
from border_cli.messages import say
from border_cli.process.monitor import monitored, set_stall_timeout
from border_cli.process.signals import EarlySignals
from border_cli.process.startup import paused_garbage_collection
from border_cli.system.display import choose_renderer
from border_cli.system.streams import prints_to_stderr

NAME = "border-env"
HELP = """\
border-env: shows what border_cli understands of an environment, before anything is trained.

  border-env ID [SETTING=VALUE …] [-cd DIR] [-cn NAME] [--json]

  ID           a Gymnasium id, module:Id-v0, module:function, or a preset such as cartpole
  SETTING      settings of the environment (env.kwargs.size=5, env.wrappers=[…], imports=[…]);
               a call of the environment may take trainer.stall_timeout_s=15 seconds
  --json       prints one JSON object instead of the lines
  --version, --help

It plays random actions for about a second and writes nothing. The exit status is 0 if an agent can
be trained, 2 if not, with the reason.

Examples
  border-env CartPole-v1
  border-env minigrid:MiniGrid-DoorKey-5x5-v0
  border-env my_module:make_env env.kwargs.size=5
"""
FIRST = ("dqn", "sac", "ppo")  # agents to suggest, best first
DEFAULTS = ("agent=random", "trainer.stall_timeout_s=15")


def _run(typed: Sequence[str], _: EarlySignals) -> None:
    parser = settings_parser(NAME)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_intermixed_args(typed)
    overrides = [word if "=" in word else _name_env(word) for word in options.overrides]
    composition = open_composer(
        normalize_overrides([*DEFAULTS, *overrides]),
        config_dirs=options.config_dirs,
        config_name=options.config_name,
    )
    renderer = choose_renderer()
    with paused_garbage_collection(), composition as (composer, normalized):
        # imported late: Gymnasium and torch, which --help does not need
        from border_cli.checks.env_report import inspect_env, lines_of, render_once
        from border_cli.launch.effective import effective_settings
        from border_cli.recorder import terminal

        effective = effective_settings(composer.job(normalized).config)
        set_stall_timeout(effective.config.trainer.stall_timeout_s)
        console = terminal.make_console()
        with prints_to_stderr():
            facts = inspect_env(effective, [])
        agent = next((name for name in FIRST if name in facts["agents"]), facts["agents"][0])
        flags = [word for folder in options.config_dirs for word in ("-cd", folder)]
        flags += ["-cn", options.config_name] if options.config_name != "config" else []
        has_images = any("network" in encoding for encoding in facts["observation"].values())
        drawn = renderer and has_images and "mujoco" in sys.modules  # by MuJoCo, also in training
        variable = f"MUJOCO_GL={renderer} " if drawn else ""
        words = shlex.join([*overrides, *flags])
        facts["train with"] = f"{variable}border-train agent={agent} {words}"
        if not options.json:
            terminal.header(console, lines_of(facts))
        if "rgb_array" in (facts["render modes"] or ()):
            with prints_to_stderr():
                facts["frame"] = render_once(effective)
            if not options.json:
                terminal.header(console, [("frame", facts["frame"])])
        if options.json:
            say(json.dumps(facts))


def _name_env(word: str) -> str:
    """Returns the override for an environment. Names of presets are lower-case words."""
    return f"env={word}" if word.isidentifier() and word.islower() else f"env.id={word}"


main = partial(plain_command, NAME, HELP, _run)
command = monitored(NAME)(main)  # entry point of the console script


if __name__ == "__main__":
    command()
