"""The HTML page of a report: its content, and escaping of names."""

from __future__ import annotations

import re

import numpy as np
import pytest

from border_cli.analysis.curves import RunCurve, report
from border_cli.analysis.page import page

NAMES = ("plain", '</text><script>bold</script> & "quoted" $title', "<i>lonely")


@pytest.fixture(scope="module")
def text() -> str:
    """A page with two groups of three seeds and one of a single seed, on two environments."""
    runs = [
        RunCurve(
            name=f"{group}{seed}",
            env=env,
            group=group,
            x=np.array([100.0, 200.0, 300.0]),
            y=np.array([0.0, 1.0, 2.0]) * (number + 1) + seed,
        )
        for env in ("cartpole", "acrobot")
        for number, group in enumerate(NAMES)
        for seed in range(1 if group == "<i>lonely" else 3)
    ]
    data = report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")
    return page(data, origin=["border-plot 'a <b>'", "border_cli 9"])


def test_the_page_has_the_curves_the_scores_and_the_warnings(text: str) -> None:
    assert text.count("<svg") == 1
    for title in ("cartpole", "acrobot"):
        assert f">{title}</text>" in text
    assert re.search(r"<td>cartpole</td><td>plain</td>.*>3.00 \[0.52, 5.48\]<", text)
    assert "&lt;i&gt;lonely on cartpole: one seed" in text


def test_the_page_says_how_it_was_made_and_from_which_runs(text: str) -> None:
    origin = text.partition("How this page was made")[2]
    assert "border-plot &#x27;a &lt;b&gt;&#x27;<br>\nborder_cli 9<br>" in origin
    assert origin.count("plain: plain") == 6
    assert "plain: plain2" in origin


def test_names_of_runs_cannot_become_part_of_the_page(text: str) -> None:
    assert "<i>" not in text
    assert "<script" not in text
    assert "&lt;script&gt;bold&lt;/script&gt; &amp; &quot;quoted&quot; $title" in text


def test_the_page_loads_no_external_resources(text: str) -> None:
    assert "default-src 'none'" in text
    assert not re.search(r"(href|src)=[\"'](?!#)|url\((?!#)|@import", text)
