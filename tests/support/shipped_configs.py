"""The shipped configuration files, and how each comes into play."""

from __future__ import annotations

from pathlib import Path

from border_cli.config.compose import Composer

CONF = Path(__file__).parents[2] / "conf"
ONE_STEP = "step_processor.n_steps=1"  # all that goes with replay_buffer=hindsight


def pair_of(tuned: str) -> list[str]:
    """The agent and env of a tuned file; of fitting agents the longest, for names have `_` too."""
    agents = [name for name in Composer().options("agent") if f"{tuned}_".startswith(f"{name}_")]
    agent = max(agents, key=len)
    env = "cartpole" if agent == tuned else tuned.removeprefix(f"{agent}_")
    return [f"agent={agent}", f"env={env}"]


def chosen_by(group: str, name: str) -> list[str]:
    """The overrides that bring a file into play."""
    if group == "tuned":
        return pair_of(name)
    if name == "rollout":
        return ["agent=ppo", "env=cartpole"]
    typed = [] if group in ("env", "experiment") else ["env.id=A-v0"]  # Atari's games have none
    if name in ("hindsight", "robotics") or name.startswith("fetch"):
        typed.append(ONE_STEP)
    return [*typed, f"{group}={name}"]
