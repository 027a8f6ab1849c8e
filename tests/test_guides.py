"""Files, commands and links in the documentation work as written."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^# ([\w/]+\.(?:py|yaml))\b", re.MULTILINE)
RUNS_OF = {  # guides with files that their commands use -> runs that the commands make
    "guides/own_environment.md": {"dqn_cartpole", "dqn_my_envs-Corridor-v0"},
    "guides/masks_and_goals.md": {"dqn_taxi", "sac_my_goals-Reach-v0"},
    "guides/images.md": {"dqn_car_racing"},
    "guides/networks.md": {"dqn_cartpole", "sac_pendulum"},
    "guides/own_agent.md": {"clipped_dqn_cartpole", "tabular_q_CliffWalking-v1"},
    "guides/callbacks.md": {"dqn_cartpole"},
    "guides/plugins.md": set[str](),
    "guides/configs.md": {"dqn_cartpole", "dqn_corridor"},
}
SHORT = [
    *("trainer.max_opt_steps=30", "trainer.warmup_period=70", "evaluator.num_episodes=1"),
    "env.max_episode_steps=20",
]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 10_000


def anchors(page: Path) -> set[str]:
    """Returns the link anchors of all headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for local_link in (link for link in links if "://" not in link):
        name, _, anchor = local_link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), local_link
        assert not anchor or anchor in anchors(target), local_link


def test_links_of_the_readme_work_on_a_package_index() -> None:
    """They are absolute, and lead to files of the repository where they name it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)|^\[\w+\]: (\S+)$", text, re.MULTILINE)
    links = [inline or reference for inline, reference in targets]
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link for link in links if "/border-cli/border_cli/" in link]
    assert len(ours) > 8
    for link in ours:
        assert (ROOT / link.partition("/main/")[2]).exists(), link
    assert {*re.findall(r"\]\[(\w+)\]", text)} <= {*re.findall(r"^\[(\w+)\]:", text, re.MULTILINE)}


def test_every_page_is_listed_in_an_index() -> None:
    """Sphinx builds its menu from the links of the pages called index."""
    listed = {
        (index.parent / link).resolve()
        for index in DOCS.rglob("index.md")
        for link in re.findall(r"\]\(([\w/]+\.md)\)", index.read_text(encoding="utf-8"))
    }
    assert {*DOCS.rglob("*.md")} - listed == {DOCS / "index.md"}


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [code for kind, code in BLOCK.findall(text) if kind == language]


def commands(page: str) -> list[str]:
    """Returns the lines of a page's shell blocks, without comments."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [line.partition("   #")[0].strip() for line in lines if line.strip()]


def save_files(folder: Path) -> None:
    """Saves the code blocks of the guides under the file names in their first lines."""
    for page in RUNS_OF:
        for code in [*blocks(page, "python"), *blocks(page, "yaml")]:
            match = NAMED.search(code)
            assert match, code
            file = folder / match.group(1)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")


def typed(command: str) -> str:
    """Returns the command with a short budget, if it trains."""
    if not command.startswith("border-train"):
        return command
    words, to_file, file = command.partition(" > ")
    short = [] if "--cfg" in words else SHORT
    return f"{words} {shlex.join(short)}{to_file}{file}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("page", RUNS_OF)
def test_the_files_and_commands_of_a_guide_work(page: str, tmp_path: Path) -> None:
    save_files(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands(page):
        process = subprocess.run(
            ["bash", "-c", typed(command)],
            cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
        assert process.returncode == 0, f"{command}\n{process.stderr}"
    trained = [
        command for command in commands(page) if re.match("border-train(?!.* --cfg)", command)
    ]
    runs = [file.parent.parent.name for file in tmp_path.glob("outputs/*/*/run.json")]
    assert {*runs} == RUNS_OF[page]
    assert len(runs) == len(trained)


def test_the_wrapper_for_actions_without_bounds_gives_them_some(tmp_path: Path) -> None:
    save_files(tmp_path)
    bounded = runpy.run_path(str(tmp_path / "my_wrappers.py"))["Bounded"]
    env = gym.make("Pendulum-v1")
    env.action_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    assert bounded(env, low=-2, high=2).action_space == gym.spaces.Box(-2, 2, (1,))


@pytest.mark.slow
def test_the_program_of_the_python_page_works(tmp_path: Path) -> None:
    program, reading = blocks("guides/python.md", "python")
    reading, _, _ = reading.partition("frame = ")  # the rest needs pandas
    short = program.replace(
        '"trainer.stop_at_score=null"', '"trainer.max_opt_steps=null", "trainer.max_time_s=4"'
    )
    process = subprocess.run(
        [sys.executable, "-c", short + reading],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1].startswith("outputs/dqn_cartpole/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_package_of_a_config_is_in_its_first_line(page: Path) -> None:
    """Hydra ignores it after any other line."""
    configs = [code for _, code in BLOCK.findall(page.read_text(encoding="utf-8"))]
    assert [code for code in configs if re.search(r"\n# *@package ", code)] == []
