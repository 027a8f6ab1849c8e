"""What the documents say is what is there."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_settings_is_that_of_the_settings_themselves() -> None:
    made = runpy.run_path(str(DOCS / "make_settings_page.py"))["page"]()
    written = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert written == made, "run: python docs/make_settings_page.py"
