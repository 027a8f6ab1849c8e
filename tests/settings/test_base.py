"""Values out of range are refused with the path, the value, and what is allowed."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from border_cli.errors import ConfigError, UnknownSetting
from border_cli.settings.base import Settings, setting


@dataclass(kw_only=True)
class Sample(Settings, path="group"):
    share: float = setting(0.5, "a fraction", low=0, high=1)
    rate: float | None = setting(1.0, "a rate; null means off", above=0)
    count: int = setting(1, "a count", low=1)
    score: float | None = setting(None, "any finite number", may_change=True)
    sizes: list[int] = setting([1, 2], "sizes", low=1)
    free: dict[str, Any] = setting({}, "arguments for other code")


@dataclass(kw_only=True)
class Child(Sample):
    more: int = setting(0, "inherits the path", low=0)
    score: float | None = None


@dataclass(kw_only=True)
class Top(Settings):
    seed: int = setting(0, "a setting without a group", low=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": -0.1}, r"^group\.share must be at least 0 and at most 1, got -0\.1$"),
        ({"share": 1.1}, r"^group\.share must be at least 0 and at most 1, got 1\.1$"),
        ({"rate": 0.0}, r"^group\.rate must be above 0, got 0\.0$"),
        ({"count": 0}, r"^group\.count must be at least 1, got 0$"),
        ({"sizes": [4, 0]}, r"^group\.sizes must be at least 1 in each entry, got \[4, 0\]$"),
    ],
)
def test_a_number_out_of_range_is_refused_with_path_value_and_range(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Sample(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"share": 0},
        {"share": 1},
        {"rate": 1e-300},
        {"rate": None},
        {"count": 1},
        {"score": -1e9},
        {"sizes": []},
        {"free": {"limit": math.inf}},  # arguments of a constructor are not checked
    ],
)
def test_the_ends_of_a_range_and_null_and_an_empty_list_are_allowed(
    values: dict[str, Any],
) -> None:
    Sample(**values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_the_infinities_are_refused_with_and_without_a_range(bad: float) -> None:
    with pytest.raises(ConfigError, match=r"group\.share must be at least 0 and at most 1, got"):
        Sample(share=bad)
    with pytest.raises(ConfigError, match=rf"^group\.score must be a finite number, got {bad}$"):
        Sample(score=bad)
    with pytest.raises(ConfigError, match=r"group\.sizes must be at least 1 in each entry"):
        Sample(sizes=[1, bad])  # type: ignore[list-item]


def test_a_whole_number_of_more_than_64_bits_is_refused_by_its_first_digits() -> None:
    assert Top(seed=2**63 - 1).seed == 2**63 - 1
    said = r"^seed must be at least 0, got 9223372036854775808$"
    with pytest.raises(ConfigError, match=said):
        Top(seed=2**63)
    with pytest.raises(ConfigError, match=r"^group\.sizes must be .* entry, got \[10{48}…$"):
        Sample(sizes=[10**400])


def test_settings_that_take_memory_are_known_also_where_their_default_is_another() -> None:
    @dataclass(kw_only=True)
    class Rows(Settings, path="group"):
        rows: int = setting(10, "rows", low=1, takes_memory=True)
        copies: int = setting(1, "copies", low=1, takes_memory=True)
        seed: int = setting(3, "a seed")

    @dataclass(kw_only=True)
    class MoreRows(Rows):
        rows: int = setting(100, "rows", low=1)

    assert MoreRows().taking_memory() == {"group.rows": 100}
    assert Rows(copies=2).taking_memory() == {"group.rows": 10, "group.copies": 2}


@dataclass(kw_only=True)
class Derived(Sample):
    """User settings with derived fields, a private attribute and a property."""

    twice: int = field(init=False, default=0)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.twice = 2 * self.count
        self.total = self.count + len(self.sizes)
        self._seen = 0

    @property
    def half(self) -> float:
        return self.share / 2

    @half.setter
    def half(self, value: float) -> None:
        self.share = 2 * value


@pytest.mark.parametrize(
    ("settings", "name", "message"),
    [
        (
            Sample(),
            "cuont",
            r"^unknown setting 'group\.cuont', did you mean group\.count\? \(gro",
        ),
        (Derived(), "xyz", r"^unknown setting 'group\.xyz' \(group has share, rate, count, "),
        (Top(), "sede", r"^unknown setting 'sede', did you mean seed\? \(a run has seed\)$"),
    ],
)
def test_assigning_what_is_no_setting_is_refused_with_the_nearest_name(
    settings: Settings, name: str, message: str
) -> None:
    before = copy.deepcopy(settings)
    with pytest.raises(UnknownSetting, match=message) as caught:
        setattr(settings, name, 1)
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, ConfigError)
    assert settings == before


def test_settings_properties_private_and_derived_attributes_can_be_assigned() -> None:
    settings = Derived(count=2)
    settings.count = 3
    settings.half = 0.25
    settings.total, settings._seen = 7, 1
    settings._cache = "of a method"  # type: ignore[attr-defined]
    assert (settings.count, settings.share, settings.total, settings.twice) == (3, 0.5, 7, 4)


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda original: pickle.loads(pickle.dumps(original)), replace],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_a_copy_is_equal_and_refuses_the_same(duplicate: Any) -> None:
    settings = Derived(count=2, sizes=[4])
    clone = duplicate(settings)
    assert clone == settings
    assert (clone.twice, clone.total) == (4, 3)
    with pytest.raises(UnknownSetting, match=r"did you mean group\.count\?"):
        clone.cuont = 1


def test_another_default_of_a_setting_keeps_its_marks() -> None:
    assert set(Child.marked("may_change")) == {"score"}
