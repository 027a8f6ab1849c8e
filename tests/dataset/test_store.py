"""The store of data sets: known IDs, metadata, and errors for unknown data sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from border_cli.dataset.store import (
    counts_of,
    is_id,
    is_known,
    known_ids,
    reference_scores,
    refuse_unknown,
    root,
)
from border_cli.errors import ConfigError


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def make(folder: Path, dataset: str, **metadata: object) -> None:
    data = folder / dataset / "data"
    data.mkdir(parents=True)
    (data / "metadata.json").write_text(json.dumps(metadata))


def test_data_sets_are_found_below_their_namespaces_and_hidden_ones_are_not(datasets: Path) -> None:
    for dataset in ("b-v0", "my/deep/a-v1", "my/.half-v0-12ab"):
        make(datasets, dataset)
    (datasets / "empty-v0").mkdir()
    assert known_ids() == ["b-v0", "my/deep/a-v1"]
    assert [is_known(name) for name in ("b-v0", "empty-v0", "../b-v0", "")] == [True] + [False] * 3


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("cartpole-v0", True),
        ("D4RL/door/human-v12", True),
        ("a/b-v0", False),  # Minari requires namespaces of two letters
        ("cartpole", False),
        ("cartpole-v", False),
        ("/etc/x-v0", False),
        ("my//x-v0", False),
        ("../x-v0", False),
        ("my/x y-v0", False),
    ],
)
def test_a_name_is_what_minari_takes(name: str, fits: bool) -> None:
    assert is_id(name) is fits


def test_an_unknown_data_set_is_refused_with_the_known_ones(datasets: Path) -> None:
    make(datasets, "my/cartpole-v0")
    assert refuse_unknown("x", "my/cartpole-v0") == "my/cartpole-v0"
    with pytest.raises(ConfigError, match=r"x: unknown data set 'my/cartpol-v0', did you"):
        refuse_unknown("x", "my/cartpol-v0")
    with pytest.raises(ConfigError, match=rf"x must be given.* Data sets in {datasets}: my/cartp"):
        refuse_unknown("x", None)


def test_without_any_it_says_where_it_looked(datasets: Path) -> None:
    with pytest.raises(ConfigError, match=f"There are no data sets in {datasets}"):
        refuse_unknown("x", "a-v0")


def test_without_a_setting_they_lie_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    assert root() == Path.home() / ".minari" / "datasets"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ref_min_score": 1, "ref_max_score": 3.5}, (1.0, 3.5)),
        ({"ref_min_score": None, "ref_max_score": 3.5}, None),
        ({"ref_max_score": 3.5}, None),
        ({"ref_min_score": 4, "ref_max_score": 3.5}, None),
    ],
)
def test_references_are_those_that_can_be_used(
    datasets: Path, metadata: dict[str, float], expected: tuple[float, float] | None
) -> None:
    make(datasets, "a-v0", **metadata)
    assert reference_scores("a-v0") == expected
    assert reference_scores("b-v0") is None


def test_counts_are_those_of_the_metadata_and_an_empty_one_is_refused(datasets: Path) -> None:
    make(datasets, "a-v0", total_episodes=3, total_steps=40)
    assert counts_of("a-v0") == (3, 40)
    make(datasets, "b-v0", total_episodes=0, total_steps=0)
    with pytest.raises(ConfigError, match=r"data set b-v0 is empty: .* 0 episodes, 0 steps"):
        counts_of("b-v0")
    (datasets / "a-v0" / "data" / "metadata.json").write_text("{")
    with pytest.raises(ConfigError, match=r"data set a-v0: .*metadata.json cannot be read"):
        counts_of("a-v0")
