"""docs/reference/metrics.md lists exactly the metrics that the code records."""

from __future__ import annotations

import re
from pathlib import Path

from border_cli.core.timing import ACTOR_SECTIONS, LEARNER_SECTIONS

ROOT = Path(__file__).parents[2]
NAME = re.compile(r'"((?:eval|episode|async|actor|time)/[a-z_/{}.]+)"')
ROW = re.compile(r"^\| `([a-z]+/[a-z_/<>]+)` \|", re.MULTILINE)


def named_in_code() -> set[str]:
    sources = (ROOT / "border_cli").rglob("*.py")
    names = {name for path in sources for name in NAME.findall(path.read_text(encoding="utf-8"))}
    sections = {"time/{section}": LEARNER_SECTIONS, "time/actor/{section}": ACTOR_SECTIONS}
    for name, section_names in sections.items():
        names.remove(name)
        names |= {name.format(section=section) for section in section_names}
    names = {name.replace("{name}", "<name>") for name in names}
    return {re.sub(r"\{[^}]*\}", "<id>", name) for name in names}


def documented() -> set[str]:
    return set(
        ROW.findall((ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8"))
    )


def test_every_metric_of_the_code_is_documented() -> None:
    assert named_in_code() - documented() == set()


def test_every_documented_metric_exists() -> None:
    scheduled = {"train/<schedule>"}  # named after the setting that follows the schedule
    of_agents = {name for name in documented() - scheduled if name.startswith("train/")}
    agents = "".join(path.read_text() for path in (ROOT / "border_cli" / "agent").glob("*.py"))
    assert documented() - scheduled - of_agents - named_in_code() == set()
    assert {name for name in of_agents if f'"{name.removeprefix("train/")}"' not in agents} == set()
