"""The argument parser of all commands, and the command line of `border-train`: its flags and
overrides."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from border_cli.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from border_cli.config.compose import Composer

FLAGS = """\
  -m, --multirun           runs a job for each combination of values: seed=0,1,2 agent=dqn,random
  -cd, --config-dir DIR    searches your config directory first; $BORDER_CONFIG_PATH adds more
      --from RUN_DIR       composes a new run from the settings of another; other arguments
                           override them
  -cn, --config-name NAME  uses a primary config other than config.yaml, such as a saved one
  -c, --cfg job|hydra|all  prints the configuration instead of running
      --resolve            with --cfg job: prints a complete configuration that runs on its own
  -p, --package KEY        with --cfg: prints only this part
  -i, --info [WHAT]        shows what Hydra searched and composed: all, defaults, searchpath, …
  -sc, --shell-completion  eval "$(border-train -sc install=bash)" enables Tab completion; zsh:
                           install=zsh; fish: border-train -sc install=fish | source
  -h, --help               prints this text, or the settings of a choice such as agent=dqn
      --hydra-help         prints Hydra's own help
      --version            prints the version
"""
INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ConfigError for invalid arguments. `hint` ends the message."""

    def __init__(self, prog: str, hint: str = "") -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False)
        self.hint = hint

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} ({self.prog} --help lists the flags{self.hint})")


class Arguments(argparse.Namespace):
    """The parsed command line of `border-train`."""

    overrides: list[str]
    config_dirs: list[str]
    config_name: str
    origin: str | None  # the RUN_DIR of --from
    multirun: bool
    cfg: str | None
    resolve: bool
    package: str | None
    info: str | None
    shell_completion: bool
    help: bool
    hydra_help: bool
    version: bool

    @property
    def shows_settings(self) -> bool:
        """True if the command shows settings instead of running a job."""
        return bool(self.help or self.cfg or self.info or self.hydra_help)

    def composing(self) -> AbstractContextManager[tuple[Composer, list[str]]]:
        """Calls `open_composer` with these arguments. Imports Hydra."""
        # imported late: Hydra, which --help does not need
        from border_cli.config.open_composer import open_composer
        from border_cli.config.overrides import normalize_overrides

        return open_composer(
            normalize_overrides(self.overrides),
            config_dirs=self.config_dirs,
            config_name=self.config_name.removesuffix(".yaml"),
            origin=self.origin,
            multirun=self.multirun,
        )

    def hydra_arguments(self, overrides: Sequence[str]) -> list[str]:
        """Returns arguments for Hydra's own parser, flags first, without config directories."""
        valued = {"cfg": self.cfg, "package": self.package, "info": self.info}
        flags = ["--config-name", self.config_name]
        flags += [f"--{flag}={value}" for flag, value in valued.items() if value]
        flags += ["--resolve"] if self.resolve else []
        flags += ["--hydra-help"] if self.hydra_help else []
        return [*flags, *overrides]


def settings_parser(prog: str) -> Parser:
    """Returns the parser of a command that accepts overrides and config directories."""
    parser = Parser(prog, "; settings have no dash")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-cd", "--config-dir", dest="config_dirs", action="append", default=[])
    parser.add_argument("-cn", "--config-name", default="config")
    return parser


def read_arguments(argv: Sequence[str]) -> Arguments:
    """Parses a command line. Raises ConfigError for an unknown flag."""
    parser = settings_parser("border-train")
    parser.add_argument("--from", dest="origin")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFOS)
    for flags in (
        ("-m", "--multirun"),
        ("-sc", "--shell-completion"),
        ("-h", "--help"),
        ("--resolve",),
        ("--hydra-help",),
        ("--version",),
    ):
        parser.add_argument(*flags, action="store_true")
    arguments = parser.parse_intermixed_args(argv, Arguments())
    if arguments.multirun and (arguments.cfg or arguments.info):
        raise ConfigError("--multirun runs jobs, --cfg and --info show settings: give one of them")
    if arguments.resolve and arguments.cfg != "job":
        raise ConfigError("--resolve requires --cfg job: Hydra's own settings refer to jobs")
    if arguments.package and not arguments.cfg:
        raise ConfigError("--package requires --cfg: it names the part to print")
    return arguments
