"""Listings in the documentation are complete, and its commands work in every shell."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from border_cli.api import resume, train
from border_cli.cli.init import RENAMED, TEMPLATE, TEMPLATE_NAME
from border_cli.config.compose import compose
from border_cli.config.resuming import marked
from border_cli.registry import AGENTS, register_builtin

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *DOCS.rglob("*.md")]
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def text(page: Path | str) -> str:
    return (page if isinstance(page, Path) else DOCS / page).read_text(encoding="utf-8")


def code(page: Path) -> tuple[list[str], list[str]]:
    """Returns the lines of a page's shell blocks, without comments, and its inline code."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
    rest = re.sub(r"^```.*?^```$", "", text(page), flags=re.MULTILINE | re.DOTALL)
    return lines, re.findall(r"`([^`]+)`", rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_shell_changes_a_command_of_a_page(page: Path) -> None:
    """Unquoted, zsh expands `[1,2]` to file names and `~tuned` to a home directory."""
    lines, spans = code(page)
    changed = [line for line in lines if re.search(r"[\[{]|(^|\s)~", QUOTED.sub("", line))]
    assert changed + [span for span in spans if re.search(r"(^|\s)~\w", QUOTED.sub("", span))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_from_an_index_that_has_no_border_cli(page: Path) -> None:
    assert re.findall(r"pip install [^`\n]*border-cli[^`\n]*", text(page)) == []


# Commands with modules or runs of the reader, flags, several jobs, or an error on purpose.
OF_READERS = re.compile(
    r" -|my_|_RUN|RUN_DIR|DIR\b|resume=|imports=|/env\.yaml|…|experiment=|gama="
)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_training_commands_of_a_page_compose(page: Path) -> None:
    lines, _ = code(page)
    commands = [line for line in "\n".join(lines).replace("\\\n", "").splitlines() if line]
    for command in commands:
        if command.startswith("border-train ") and not OF_READERS.search(command):
            compose(*shlex.split(command.partition(" || ")[0])[1:])


CACHE = re.compile(r"__pycache__|_cache/")


def test_the_tree_of_a_new_repository_names_all_of_its_files() -> None:
    tree = text("guides/configs.md").partition("```\nmy_experiments/\n")[2].partition("```")[0]
    files = [path.relative_to(TEMPLATE) for path in TEMPLATE.rglob("*") if path.is_file()]
    names = {RENAMED.get(path.name, path.name) for path in files if not CACHE.search(str(path))}
    assert TEMPLATE_NAME == "my_experiments"
    assert sorted(name for name in names if name not in tree) == []


def test_the_tree_of_a_run_directory_names_all_that_a_run_and_a_resume_write(
    tmp_path: Path,
) -> None:
    short = ("trainer.max_opt_steps=20", "trainer.warmup_period=64", "evaluator.num_episodes=1")
    folder = tmp_path / "run"
    train(compose("agent=dqn", "env=cartpole", *short, f"run_dir={folder}"))
    resume(folder, "trainer.max_opt_steps=30")
    tree = text("reference/run_directory.md").partition("## The run directory")[2].split("```")[1]
    names = [path.name for path in [*folder.iterdir(), *(folder / ".hydra").iterdir()]]
    absent = [name for name in names if name not in tree and not name.startswith("events.out.")]
    assert absent == []


def test_the_guide_to_resuming_names_all_settings_that_may_change() -> None:
    register_builtin()
    page = text("guides/resume.md")
    guide = page.partition("When resuming you can change")[2].partition("`init_from`")[0]
    descriptions = {
        r"trainer\.max_\w+": "limits",
        r"trainer\.stop_\w+": "`stop_…`",
        r"trainer\.\w+_(interval|interval_env_steps|every_s)": "intervals of `trainer`",
        r"agent\.\w*learning_rate": "every learning rate of the agent",
        "actor_manager": "actor manager",
        "sweep": "",  # not used by a single run
    }
    absent = []
    for key in marked("may_change"):
        words = [word for kind, word in descriptions.items() if re.fullmatch(kind, key)]
        if (words[0] if words else key.rpartition(".")[2]) not in guide:
            absent.append(key)
    assert absent == []


def test_the_agents_without_scores_are_those_that_no_result_names() -> None:
    register_builtin()
    names = {name for entry in AGENTS for name in (entry.name, *entry.presets)} - {"random"}
    listed = text("agents/index.md").partition("as yet none of")[2].partition(". ")[0]
    missing = {
        name for name in names if not re.search(rf"(?<!\w){name}(?!\w)", text("inside/results.md"))
    }
    scored = set(
        re.findall(r"^\| ([a-z0-9_]+?)(?: †)? \|", text("inside/results.md"), re.MULTILINE)
    )
    missing -= {name for name in missing if any(row.startswith(f"{name}_") for row in scored)}
    assert set(re.findall(r"`(\w+)`", listed)) == missing
