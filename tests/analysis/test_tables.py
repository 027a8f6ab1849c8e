"""Tables of a report as Markdown and CSV, and the format of numbers."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from border_cli.analysis import tables
from border_cli.analysis.curves import Report, RunCurve, report


def a_report(
    groups: tuple[str, ...] = ("a|b", "c"), *, envs: tuple[str, ...] = ("pendulum",)
) -> Report:
    runs = [
        RunCurve(
            name="run",
            env=env,
            group=group,
            x=np.array([100.0, 250.0]),
            y=np.array([0.0, 10.0 * number + seed]),
            normalized=10.0 * number + seed,
        )
        for env in envs
        for number, group in enumerate(groups)
        for seed in range(2)
    ]
    return report(runs, by=["agent"], x="env_steps", y="eval/return", stat="mean")


@pytest.mark.parametrize(
    ("value", "others", "text"),
    [
        (412.345, (), "412.3"),
        (-1234.5, (), "-1,234.5"),
        (4.1, (), "4.10"),
        (4.1, (380.0,), "4.1"),
        (0.0123456, (), "0.01235"),
        (0.0, (), "0"),
        (float("nan"), (), "–"),
        (1.0, (float("nan"),), "1.00"),
    ],
)
def test_a_number_has_the_digits_of_its_row(
    value: float, others: tuple[float, ...], text: str
) -> None:
    assert tables.number(value, *others) == text


def test_markdown_has_the_final_scores_and_escapes_names() -> None:
    text = tables.markdown(a_report())
    assert "| agent | seeds | mean | lowest | highest | normalised | budget |" in text
    # Scores 0 and 1: the mean is 0.5, the deviation 0.7071, and half the interval 12.706 / 2.
    assert (
        "| a\\|b | 2 | 0.50 [-5.85, 6.85] | 0.00 | 1.00 | 0.50 [-5.85, 6.85] | 250 env steps |"
        in text
    )
    assert "| c | a\\|b | 1.00 [1.00, 1.00] | 2, 2 |" in text


def test_several_environments_have_a_column_and_a_row_for_all() -> None:
    text = tables.markdown(a_report(envs=("pendulum", "acrobot")))
    assert "| env | agent |" in text
    assert "| all (normalised) | c | 4 | – | – | – | 10.50 [10.00, 11.00] | 250 env steps |" in text


def test_csv_files_hold_exact_numbers() -> None:
    data = a_report(envs=("pendulum", "acrobot"))

    def rows(text: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(text)))

    curve = rows(tables.csv_text(data, "curves"))[1]
    expected = {"env": "pendulum", "group": "a|b", "env_steps": "250", "mean": "0.5", "seeds": "2"}
    assert curve | expected == curve
    assert float(curve["low"]) == pytest.approx(0.5 - 12.7062047 / 2)
    overall = rows(tables.csv_text(data, "scores"))[-1]
    assert overall | {"env": "all", "mean": "", "normalised": "10.5"} == overall
    [pair] = rows(tables.csv_text(data, "improvement"))
    assert pair | {"group": "c", "other": "a|b", "probability": "1.0"} == pair
    profile = rows(tables.csv_text(data, "profile"))
    assert profile[0] | {"normalised_score": "0.0", "share_above": "0.5"} == profile[0]
