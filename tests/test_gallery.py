"""The gallery's page is the one that its script writes, and its pictures are there and small."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "make_gallery.py"))


def test_the_page_is_that_of_the_figures(script: dict[str, Any]) -> None:
    figures = json.loads(script["FIGURES"].read_text(encoding="utf-8"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](figures), (
        "run: python docs/make_gallery.py --page"
    )


def test_every_task_has_a_score_for_each_of_its_seeds(script: dict[str, Any]) -> None:
    tasks = json.loads(script["FIGURES"].read_text(encoding="utf-8"))["tasks"]
    assert tasks.keys() == script["TASKS"].keys()
    for name, task in script["TASKS"].items():
        (seeds,) = (word for word in task.typed if word.startswith("seed="))
        assert len(tasks[name]["scores"]) == len(seeds.split(","))


def test_the_folder_has_what_the_page_shows_and_is_small(script: dict[str, Any]) -> None:
    shown = set(re.findall(r"\]\(gallery/([^)]+)\)", script["PAGE"].read_text(encoding="utf-8")))
    sizes = {path.name: path.stat().st_size for path in script["FOLDER"].iterdir()}
    assert shown == {f"{task}.{kind}" for task in script["TASKS"] for kind in ("gif", "png", "svg")}
    assert sizes.keys() == shown | {"figures.json"}
    assert max(sizes.values()) <= script["FILM_BYTES"]
    assert sum(sizes.values()) <= script["ALL_BYTES"]


def test_a_large_film_loses_frames_and_keeps_its_duration(
    script: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    first, *others = [
        Image.fromarray(rng.integers(256, size=(20, 20), dtype=np.uint8)) for _ in range(8)
    ]
    film = tmp_path / "film.gif"
    first.save(film, save_all=True, append_images=others, duration=40, loop=0)
    bytes_of_all = film.stat().st_size
    script["shorten"](film, bytes_of_all)
    assert film.stat().st_size == bytes_of_all
    script["shorten"](film, bytes_of_all // 2)
    with Image.open(film) as shortened:
        frames, duration_ms = shortened.n_frames, shortened.info["duration"]
    assert film.stat().st_size <= bytes_of_all // 2
    assert (frames, duration_ms) in [(4, 80), (2, 160)]
