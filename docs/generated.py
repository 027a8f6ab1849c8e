"""Parts of pages that are written when the site is built: facts about agents, and help texts."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from make_settings_page import section_of_option

from border_cli.cli.overview import overview
from border_cli.registry import AGENTS, Entry, register_builtin

DOCS = Path(__file__).parent
CONF = DOCS.parent / "conf"
RESULTS = DOCS / "inside" / "results.md"
DIFFERENCES = DOCS / "agents" / "differences.md"
COMMANDS = ("eval", "runs", "plot", "tune", "record", "export", "env", "init")


def agent(name: str) -> str:
    """Returns the settings, files, differences from the paper, results and curves of an agent."""
    register_builtin()
    entry = next(entry for entry in AGENTS if name in (entry.name, *entry.presets))
    parts = [_files(name), _differences(name), _results(name), _settings(entry)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _files(name: str) -> str:
    files = [
        path for folder in ("agent", "tuned") if (path := CONF / folder / f"{name}.yaml").exists()
    ]
    blocks = [f"```yaml\n{path.read_text(encoding='utf-8')}```" for path in files]
    others = [f"`{path.stem}`" for path in sorted((CONF / "tuned").glob(f"{name}_*.yaml"))]
    tuned = f"\n\nFiles with tuned values, in `conf/tuned`: {', '.join(others)}." if others else ""
    return "## Configuration\n\n" + "\n\n".join(blocks) + tuned


def _differences(name: str) -> str:
    """Returns the rows of the table of differences that name the agent."""
    head, rows = _rows(DIFFERENCES)
    of_agent = [row for row in rows if re.search(rf"`{name}`", row.split("|")[1])]
    if not of_agent:
        return ""
    lines = [f"|{line.split('|', 2)[2]}" for line in (*head, *of_agent)]  # without the agents
    return "## Differences from the paper\n\n" + "\n".join(lines)


def _results(name: str) -> str:
    """Returns the rows of the results of the agent, and its curves."""
    longer = [other.stem for other in (CONF / "agent").glob(f"{name}_*.yaml")]
    parts = []
    for table in re.findall(r"(?:^\|.*\n)+", RESULTS.read_text(encoding="utf-8"), re.MULTILINE):
        head, rows = _split(table.splitlines())
        of_agent = [row for row in rows if _is_of(row.split("|")[1].strip(), name, longer)]
        parts += ["\n".join([*head, *of_agent])] if of_agent else []
    curves = [
        f"![{path.stem}](../inside/results/{path.name})"
        for path in sorted((DOCS / "inside" / "results").glob(f"{name}_*.svg"))
        if _is_of(path.stem, name, longer)
    ]
    if not parts and not curves:
        return "## Results\n\nNone are published yet."
    source = "What the columns mean, and how it was measured: [results](../inside/results.md)."
    return "\n\n".join(["## Results", source, *parts, *curves])


def _is_of(row: str, name: str, longer: list[str]) -> bool:
    """Returns whether a row of the results is of an agent: td3_bc_x is not of td3."""
    return row.startswith(f"{name}_") and not any(row.startswith(f"{other}_") for other in longer)


def _settings(entry: Entry) -> str:
    common = "[common settings](../reference/settings.md#agent-common-settings)"
    table = section_of_option("agent", entry).partition("\n\n")[2]
    return f"## Settings\n\nBesides the {common} of all agents:\n\n{table}"


def _rows(page: Path) -> tuple[list[str], list[str]]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return _split([line for line in lines if line.startswith("|")])


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Splits a table into its head and its rows."""
    return lines[:2], lines[2:]


def commands() -> str:
    """Returns the help text of each command."""
    modules = {name: importlib.import_module(f"border_cli.cli.{name}") for name in COMMANDS}
    texts = {"train": overview([])} | {name: module.HELP for name, module in modules.items()}
    return "\n\n".join(
        f"## border-{name}\n\n```text\n{text.strip()}\n```" for name, text in texts.items()
    )


PARTS = {"agent": agent, "commands": commands}
