"""What the documents say is what is there."""

from __future__ import annotations

import html
import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_settings_is_that_of_the_settings_themselves() -> None:
    made = runpy.run_path(str(DOCS / "make_settings_page.py"))["page"]()
    written = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert written == made, "run: python docs/make_settings_page.py"


def test_the_picture_in_the_readme_shows_the_figures_of_the_panel() -> None:
    missing = runpy.run_path(str(DOCS / "make_terminal_picture.py"))["missing"]
    drawn = (DOCS / "terminal.svg").read_text(encoding="utf-8")
    shown = " ".join(html.unescape(each) for each in re.findall(r"<text[^>]*>([^<]*)<", drawn))
    assert missing(shown.replace("\xa0", " ")) == []
    assert missing("$ border-train agent=dqn env=cartpole") != []
