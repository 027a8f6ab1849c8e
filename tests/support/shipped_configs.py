"""The shipped configuration files, and the overrides that select them."""

from __future__ import annotations

from pathlib import Path

from border_cli.config.compose import Composer

CONF = Path(__file__).parents[2] / "conf"
ONE_STEP = "step_processor.n_steps=1"  # required by replay_buffer=hindsight
WITH_GOALS = ("robotics", "maze", "panda")  # environments that choose replay_buffer=hindsight


def pair_of(tuned: str) -> list[str]:
    """Returns the overrides for a tuned file `AGENT_ENV`; the longest agent name that fits wins."""
    agents = [name for name in Composer().options("agent") if f"{tuned}_".startswith(f"{name}_")]
    agent = max(agents, key=len)
    env = "cartpole" if agent == tuned else tuned.removeprefix(f"{agent}_")
    return [f"agent={agent}", f"env={env}"]


def chosen_by(group: str, name: str) -> list[str]:
    """Returns the overrides that make a command use a file."""
    if group == "tuned":
        return pair_of(name)
    if name == "rollout":
        return ["agent=ppo", "env=cartpole"]
    typed = [] if group in ("env", "experiment") else ["env.id=A-v0"]  # Atari envs have no id
    if name in ("hindsight", *WITH_GOALS) or name.startswith("fetch"):
        typed.append(ONE_STEP)
    return [*typed, f"{group}={name}"]
