"""The site of the documentation builds without warnings, and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx")
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(DOCS / "make_site.py"), "--build", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_in_the_menu_and_in_the_search(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    menu = (site / "index.html").read_text(encoding="utf-8")
    search = (site / "searchindex.js").read_text(encoding="utf-8")
    for page in pages - {Path("index")}:
        assert f'href="{page}.html"' in menu or page.parts[0] == "agents"
        assert f'"{page}"' in search


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:link|script|img)[^>]*(?:href|src)="(?:https?:)?//[^"]*')
    assert {path.name: loaded.findall(path.read_text()) for path in site.rglob("*.html")} == {
        path.name: [] for path in site.rglob("*.html")
    }


@pytest.mark.slow
def test_ids_of_claims_are_not_part_of_the_site(site: Path) -> None:
    pages = ("inside/benchmarks.html", "inside/results.html")
    assert [page for page in pages if "claim:" in (site / page).read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_the_page_of_an_agent_has_its_settings_differences_and_results(site: Path) -> None:
    page = (site / "agents" / "dqn.html").read_text(encoding="utf-8")
    for part in ("agent.double", "Polyak averaging", "dqn_cartpole", "dqn_acrobot.svg"):
        assert part in page
    assert "td3_bc" not in (site / "agents" / "td3.html").read_text().partition("<h2>Results")[2]
