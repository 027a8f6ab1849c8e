"""The HTML page: nothing of a run can become part of it, and what it does in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest

from border_cli.analysis.curves import Report, RunCurve, report
from border_cli.analysis.page import page

NAMES = ("plain", '</script><b>bold</b> & "quoted" {{data}}', "<i>lonely")


def a_report() -> Report:
    """Two groups of three seeds and one of one, on two environments."""
    runs = [
        RunCurve(
            name=f"{group}{seed}",
            env=env,
            group=group,
            x=np.array([100.0, 200.0, 300.0]),
            y=np.array([0.0, 1.0, 2.0]) * (number + 1) + seed,
            budget=300.0,
            normalized=10.0 * (number + 1) + seed,
        )
        for env in ("cartpole", "acrobot")
        for number, group in enumerate(NAMES)
        for seed in range(1 if group == "<i>lonely" else 3)
    ]
    return report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_the_page_holds_every_curve_with_its_interval() -> None:
    content = data_of(page(a_report()))
    titles = ["cartpole", "acrobot", "performance profile, all environments"]
    assert [each["title"] for each in content["panels"]] == titles
    first, _, lonely = content["panels"][0]["curves"]
    assert (first["x"], first["mid"], first["seeds"]) == ([100, 200, 300], [1, 2, 3], 3)
    assert first["low"][0] == pytest.approx(1 - 4.302653 / 3**0.5, rel=1e-5)  # Student's, 2 degrees
    assert (lonely["low"], lonely["high"], lonely["seeds"]) == (None, None, 1)


def test_names_of_runs_cannot_become_part_of_the_page() -> None:
    text = page(a_report())
    assert data_of(text)["groups"][1]["name"] == NAMES[1]
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;i&gt;lonely on cartpole: one seed" in text
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; &quot;quoted&quot; {{data}}" in text


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    text = page(a_report())
    assert "default-src 'none'" in text
    addresses = set(re.findall(r"https?://[^\"' ]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address


@pytest.mark.slow
@pytest.mark.skipif(browser.executable() is None, reason="no Chromium is installed")
def test_the_page_answers_the_pointer_and_its_legend_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(a_report()), encoding="utf-8")
    with browser.browser(tmp_path / "profile") as opened:
        opened.open(path)
        assert curves(opened) == [0, 1, 2, 0, 1, 2, 0, 1, 2]

        opened.move(*opened.middle_of(".panel > svg"))
        tip = opened.value("document.querySelector('.tip').innerText")
        assert "200 env steps" in tip
        assert re.search(r"plain\s+2 \[-0\.4841, 4\.48\]\s+n=3", tip)
        assert re.search(r"<i>lonely\s+3\s+n=1", tip)
        assert "</script><b>bold</b>" in tip
        opened.move(5, 5)
        assert opened.value("document.querySelector('.tip').hidden")

        opened.click(*opened.middle_of(".legend button", 0))
        assert curves(opened) == [1, 2, 1, 2, 1, 2]
        assert opened.value("document.querySelector('button').ariaPressed") == "false"
        opened.move(*opened.middle_of(".panel > svg"))
        assert "plain" not in opened.value("document.querySelector('.tip').innerText")
        opened.click(*opened.middle_of(".legend button", 0))
        assert curves(opened) == [0, 1, 2, 0, 1, 2, 0, 1, 2]

        opened.click(*opened.middle_of(".legend button", 2), count=2)
        assert curves(opened) == [2, 2, 2]
        opened.click(*opened.middle_of(".legend button", 2), count=2)
        assert curves(opened) == [0, 1, 2, 0, 1, 2, 0, 1, 2]

        assert opened.complaints() == []
        assert opened.requested() == [path.resolve().as_uri()]


def curves(opened: browser.Page) -> list[int]:
    """The groups whose curves are drawn, panel by panel."""
    drawn = "[...document.querySelectorAll('.curve')].map(each => +each.dataset.group)"
    found: list[int] = opened.value(drawn)
    return found
