"""Registers our components and locates conf/ for border_cli."""

from pathlib import Path

from border_cli.registry import AGENTS, NETWORKS, RECORDERS

from my_experiments.config import MellowDqnConfig, ScoreFileConfig

# A class is imported only when a run needs it, so that help and Tab completion are fast.
AGENTS.register("mellow_dqn", MellowDqnConfig, f"{__name__}.mellow_dqn:MellowDqn")
NETWORKS.register("board", f"{__name__}.board:BoardNetwork")
RECORDERS.register("scores", ScoreFileConfig, f"{__name__}.score_file:ScoreFile")


def plugin() -> str:
    """Returns the folder of our YAML files. The entry point in pyproject.toml refers to it.

    conf/ is next to this package, or inside it if the package was installed from a wheel.
    """
    package = Path(__file__).parent
    inside = package / "conf"
    return str(inside if inside.is_dir() else package.parent / "conf")
