"""Generated pages, figures and lists in the documentation match the code."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest
import yaml

from border_cli.registry import AGENTS, register_builtin

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
README = TESTS.parent / "README.md"


def test_the_page_of_settings_is_that_of_the_settings_themselves() -> None:
    generated = runpy.run_path(str(DOCS / "make_settings_page.py"))["page"]()
    written = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert written == generated, "run: python docs/make_settings_page.py"


def test_the_picture_in_the_readme_shows_the_figures_of_the_panel() -> None:
    missing = runpy.run_path(str(DOCS / "make_terminal_picture.py"))["missing"]
    drawn = (DOCS / "terminal.svg").read_text(encoding="utf-8")
    shown = " ".join(html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)<", drawn))
    assert missing(shown.replace("\xa0", " ")) == []
    assert missing("$ border-train agent=dqn env=cartpole") != []


def test_every_test_that_a_page_names_is_there() -> None:
    """Checks `folder/test_x.py`, `folder/test_x.py::test_y`, globs such as `agent/test_*.py`, and
    `test_y`, which may be in any file."""
    sources = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")}
    absent = []
    for page in [README, *DOCS.rglob("*.md")]:
        for reference in re.findall(
            r"`(?:tests/)?([\w/*]*test_[\w*]+(?:\.py)?(?:::\w+)?)`", _text(page)
        ):
            file, _, function = reference.partition("::")
            if not file.endswith(".py"):
                file, function = "**/test_*.py", file
            candidates = [sources[path] for path in TESTS.glob(file) if path in sources]
            if not any(f"def {function}(" in source or not function for source in candidates):
                absent.append(f"{page.name}: {reference}")
    assert absent == []


def test_the_table_of_agents_says_what_each_of_them_takes() -> None:
    register_builtin()
    expected = {}
    for entry in AGENTS:
        config = entry.config_type
        many = "joint" if hasattr(config, "max_joint_actions") else "factored"
        cells = [
            "yes" if "Discrete" in config.actions else "",
            many if "MultiDiscrete" in config.actions else "",
            "yes" if "Box" in config.actions else "",
            "yes" if config.gives_priorities else "",
        ]
        expected |= dict.fromkeys((entry.name, *entry.presets), cells)
    table = _text(DOCS / "agents" / "index.md").partition("| `agent=` |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in table.splitlines()[2:]]
    listed = {name: row[1:5] for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == expected


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.slow  # because the second stage of .ci/run has ray
def test_the_cluster_of_the_guide_fits_the_schema_of_ray() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("needs ray")
    schema = json.loads((Path(ray.origin).parent / "autoscaler/ray-schema.json").read_text())
    blocks = re.findall(
        r"```yaml\n(# cluster\.yaml\n.*?)```", _text(DOCS / "guides" / "cluster.md"), re.S
    )
    assert len(blocks) == 1
    jsonschema.validate(yaml.safe_load(blocks[0]), schema)
