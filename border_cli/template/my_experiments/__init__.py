"""Our components by name, and where border_cli finds them and conf/."""

from pathlib import Path

from border_cli.registry import AGENTS, NETWORKS, RECORDERS

from my_experiments.config import MellowDqnConfig, ScoreFileConfig

# A class is imported only when a run builds it, so that help and Tab completion stay fast.
AGENTS.register("mellow_dqn", MellowDqnConfig, f"{__name__}.mellow_dqn:MellowDqn")
NETWORKS.register("board", f"{__name__}.board:BoardNetwork")
RECORDERS.register("scores", ScoreFileConfig, f"{__name__}.score_file:ScoreFile")


def plugin() -> str:
    """The folder of our YAML files, for the entry point in pyproject.toml.

    It is conf/ beside this package, or a part of the package where that is installed as a wheel.
    """
    package = Path(__file__).parent
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")
