"""Every shipped file composes, and every component has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampling import sampled

from border_cli.config.compose import Composer, compose
from border_cli.registry import GROUPS, register_builtin

CONF = Path(__file__).parents[2] / "conf"
FILES = sorted(
    (file.parent.name, file.stem) for file in CONF.glob("*/*.yaml") if file.parent.name != "tuned"
)
TUNED = sorted(file.stem for file in (CONF / "tuned").glob("*.yaml"))
OF_AGENTS = [name for name in TUNED if ("agent", name) in FILES]


def pair_of(tuned: str) -> tuple[str, str]:
    """Agent and env; the longest agent that fits, for names of agents have underscores too."""
    if tuned in OF_AGENTS:
        return tuned, "cartpole"  # any
    fitting = [name for name in Composer().options("agent") if tuned.startswith(f"{name}_")]
    agent = max(fitting, key=len, default="")
    return agent, tuned.removeprefix(f"{agent}_")


ONE_STEP = "step_processor.n_steps=1"  # all that goes with replay_buffer=hindsight


@pytest.mark.parametrize(("group", "name"), sampled([*FILES], every=7))
def test_every_file_composes(group: str, name: str, folder: Path) -> None:
    typed = [] if group in ("env", "experiment") else ["env.id=A-v0"]  # Atari's games have none
    if name in ("hindsight", "robotics") or name.startswith("fetch"):
        typed.append(ONE_STEP)
    job = Composer().job([*typed, f"{group}={name}"])
    files = [source.file for source in job.sources if source.group == group]
    assert name == "none" or str(CONF / group / f"{name}.yaml") in files
    assert not list(folder.iterdir())


@pytest.mark.slow
def test_every_registered_component_has_its_file_and_is_what_the_file_gives() -> None:
    register_builtin()
    for group, registry in GROUPS.items():
        for entry in registry:
            one_step = [ONE_STEP] if entry.name == "hindsight" else []
            for name in (entry.name, *entry.presets):
                settings = getattr(compose(f"{group}={name}", *one_step), group)
                made = settings[name] if isinstance(settings, dict) else settings
                assert type(made) is entry.config_type


GROUPS_BESIDE = sorted({group for group, _ in FILES} - {"agent", "env", "experiment"})
OPTIONS = [
    [f"{group}={name}" for in_group, name in FILES if in_group == group] for group in GROUPS_BESIDE
]  # of each group
ROWS = [[names[row % len(names)] for names in OPTIONS] for row in range(max(map(len, OPTIONS)))]


def choices_beside(tuned: str, options: list[str]) -> list[str]:
    agent, env = pair_of(tuned)
    job = Composer().job([f"agent={agent}", f"env={env}", *options, ONE_STEP])
    return [source.choice for source in job.sources if source.group == "tuned"]


@pytest.mark.parametrize(("index", "tuned"), [*enumerate(TUNED)][::5], ids=TUNED[::5])
def test_a_tuned_file_goes_with_an_option(index: int, tuned: str) -> None:
    options = [each for names in OPTIONS for each in names]
    assert tuned in choices_beside(tuned, [options[index % len(options)]])


@pytest.mark.slow
@pytest.mark.parametrize("tuned", TUNED)
def test_a_tuned_file_goes_with_every_option_of_every_group(tuned: str) -> None:
    """One of each group at once, until all have had their turn."""
    for row in ROWS:
        assert tuned in choices_beside(tuned, row)


@pytest.mark.parametrize("tuned", TUNED)
def test_a_tuned_file_is_named_after_its_agent_or_its_pair(tuned: str) -> None:
    agent, env = pair_of(tuned)
    names = Composer()
    assert agent in names.options("agent")
    assert env in names.options("env")
