"""Sphinx's settings. `python docs/make_site.py` builds the site."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))

from generated import PARTS  # noqa: E402 - found in this folder

META = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = f"{META['urls']['Repository']}/blob/main"
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")
LISTED = re.compile(r"^(?:- |\| )\[[^]]*\]\(([\w/]+)\.md\)", re.MULTILINE)
PART = re.compile(r"^<!-- generated: (\w+)(?: (\w+))? -->$", re.MULTILINE)
CLAIM = re.compile(r" ?(?<!`)<!-- claim: [^>]*-->")  # not where a page quotes one as code

project = "border_cli"
copyright = "the authors of border_cli"
version = release = META["version"]
html_title = f"border_cli {version}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_heading_anchors = 4
default_role = "code"  # docstrings have single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "furo"
html_favicon = "favicon.svg"
html_show_sphinx = False
html_copy_source = False


def prepare(_: Sphinx, docname: str, source: list[str]) -> None:
    """Makes a page of the repository one of the site: writes its generated parts, removes ids of
    claims, lists the pages of an index in the menu, and links to files outside of this folder in
    the repository."""
    text = PART.sub(lambda part: PARTS[part[1]](*filter(None, [part[2]])), source[0])
    text = CLAIM.sub("", text)
    if docname.rpartition("/")[2] == "index":
        text += "".join(menu(*section) for section in sections_of(text))
    folder = (DOCS / docname).parent

    def to_sources(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / link[1]))
        if target.is_relative_to(DOCS):
            return link[0]
        return f"]({SOURCES}/{target.relative_to(ROOT)}"

    source[0] = LINK.sub(to_sources, text)


def sections_of(text: str) -> list[tuple[str, list[str]]]:
    """Returns the headings of a page with the pages that are listed below each."""
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    headings = ["", *parts[1::2]]
    listed = [LISTED.findall(part) for part in parts[0::2]]
    return [(heading, pages) for heading, pages in zip(headings, listed, strict=True) if pages]


def menu(heading: str, pages: list[str]) -> str:
    """Returns a hidden table of contents, which Sphinx shows in its menu."""
    caption = f":caption: {heading}\n" if heading else ""
    return "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(pages) + "\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
