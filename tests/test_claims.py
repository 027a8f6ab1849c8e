"""Every claim of the README, the results, the benchmarks and the comparison has a proof."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from benchmarks.claims import Paragraph, Proof, fill, paragraphs, problems, shows
from benchmarks.figures import COMMANDS, measure

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/inside/results.md", "docs/inside/benchmarks.md")
COMPARISON = ROOT / "docs" / "inside" / "comparison.md"  # generated, with a test of its own
FIGURES = ROOT / "benchmarks" / "results" / "figures"


def test_every_claim_has_a_proof() -> None:
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    proofs = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text(encoding="utf-8"))
    assert problems(pages, proofs, ROOT) == []


def test_the_comparison_is_checked_by_its_own_test() -> None:
    assert not COMPARISON.exists() or (ROOT / "tests" / "test_comparison.py").is_file()


def parts_of_the_benchmarks() -> dict[str, str]:
    """Returns the text of each part of the page by its name, and of the page before them by ''."""
    page = (ROOT / "docs" / "inside" / "benchmarks.md").read_text(encoding="utf-8")
    head, *parts = re.split(r"^## (?=`)", page, flags=re.MULTILINE)
    return {"": head} | {part.split("`")[1]: " ".join(part.split()) for part in parts}


def test_the_benchmarks_name_date_and_processor_of_their_figures() -> None:
    head, *parts = parts_of_the_benchmarks().items()
    wrong = []
    for name, part in parts:
        figures = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
        context = part if re.search(r"\d{4}-\d\d-\d\d", part) else head[1]
        facts = [figures["date"], figures["machine"]["cpu"] or ""]
        wrong += [f"{name}: {fact}" for fact in facts if fact not in context]
        if not figures["commit"] and "from" not in figures:
            wrong.append(f"{name}: neither a commit nor where the figures are from")
    assert wrong == []


def test_figures_have_date_machine_and_versions_and_the_rows_by_label() -> None:
    content = measure({"small": "prioritized --rows 500 --repeats 2"})
    assert content["commands"] == ["python -m benchmarks.prioritized --rows 500 --repeats 2"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert {"cpu", "cores", "python", "torch", "numpy"} <= content["machine"].keys()
    assert content["rows"]["small"]["sample_and_update"]["rows"] == 500


def test_the_figures_of_the_benchmarks_can_be_measured_again() -> None:
    assert parts_of_the_benchmarks().keys() - {""} == COMMANDS.keys()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a test and a file of figures."""
    (tmp_path / "tests").mkdir()
    test = "def test_it_is_fast() -> None: ...\n\n\ndef helper() -> None: ...\n"
    (tmp_path / "tests" / "test_speed.py").write_text(test)
    rows = {"a": {"ours": {"median": 2.714, "min": 2.6, "max": 2.8}, "theirs": 104}, "b": [7.0]}
    (tmp_path / "speed.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


TESTED: dict[str, Proof] = {"x": {"test": "tests/test_speed.py::test_it_is_fast"}}
RATIO: dict[str, Proof] = {"x": {"file": "speed.json", "values": ["a.ours.median"]}}
TABLE: dict[str, Proof] = {
    "x": {"file": "speed.json", "rows": ["a"], "columns": ["{}.ours", "{}.theirs", "b.0"]}
}


@pytest.mark.parametrize(
    "text",
    [
        *("It takes 3 s.", "12 minutes", "0.5 ms", "40 µs", "80 MB", "7.21 GB", "95 %", "2.7×"),
        *("twice: 2x", "1.18 times as long", "54,600 samples/s", "5,420 env steps/s", "9 frames/s"),
        *("score 500", "scores of the best: 497.6", "500 of 500", "-138.2 ± 2.8", "1.6 (1.5–1.7)"),
        *("a mean return of -168", "it never stops", "Always on", "exactly once", "to the\nbit"),
        *("bit-identical results", "- an item\n- another of 4 s", "# Of 3 s", "> 3 s"),
        "| a | b |\n| --- | --- |\n| x | 1,024 |",
    ],
)
def test_a_claim_without_an_id_is_found(text: str, root: Path) -> None:
    (problem,) = problems({"p.md": f"# Page\n\n{text}\n"}, {}, root)
    assert re.match(r"p\.md:\d+: no id for '.+'", problem)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Python 3.11 to 3.13",
            "batch 64 of [256, 256]",
            "20,000 env steps",
            "seed 3",
            "2026-11-28",
        ),
        *("Stable-Baselines3 2.9.2", "scores over 100 fresh episodes", "`timeout=3 s`", "84 x 84"),
        *("```sh\nsleep 3 s  # exactly\n```", "[text](3%20s.md)", "<!-- 3 s -->", "1e-5 in all"),
        "| a | b |\n| --- | --- |\n| 1 | 3 steps |",
    ],
)
def test_what_is_no_claim_needs_no_id(text: str, root: Path) -> None:
    assert problems({"p.md": f"# Page\n\n{text}\n"}, {}, root) == []


def test_a_problem_names_file_line_and_text(root: Path) -> None:
    page = "A page.\n\nSome words that\nnever end. They take 3\ns.\n"
    assert problems({"p.md": page}, {}, root) == [
        "p.md:4: no id for 'never'",
        "p.md:4: no id for '3 s'",
    ]


@pytest.mark.parametrize(
    "page",
    [
        "3 s, exactly. <!-- claim: x -->\n\n4 s.",  # another paragraph
        "- 3 s <!-- claim: x -->\n- 4 s",  # another item
        "<!-- claim: x -->\n| a | b |\n| --- | --- |\n| c | 3 |\n\n4 s",  # below the table
    ],
)
def test_an_id_counts_for_its_own_paragraph_only(page: str, root: Path) -> None:
    (problem,) = problems({"p.md": page}, TESTED, root)
    assert "no id for '4 s'" in problem


def test_proved_claims_are_no_problem(root: Path) -> None:
    table = (
        "<!-- claim: x -->\n| | ratio | of | |\n|---|---|---|---|\n| 9 | 2.71 (2.6–2.8) | 104 | 7 |"
    )
    assert problems({"p.md": "It takes\n3 s. <!-- claim: x -->"}, TESTED, root) == []
    assert problems({"p.md": "With 8 seeds it is 2.7×. <!-- claim: x -->"}, RATIO, root) == []
    assert problems({"p.md": table}, TABLE, root) == []
    both: dict[str, Proof] = {"x": RATIO["x"], "y": TESTED["x"]}
    assert problems({"p.md": "2.7× in 3 s. <!-- claim: x y -->"}, both, root) == []


@pytest.mark.parametrize(
    ("page", "proof", "problem"),
    [
        ("3 s <!-- claim: z -->", TESTED, "p.md:1: unknown id z"),
        ("text", TESTED, "no page uses x"),
        ("3 s <!-- claim: x -->", {"x": {"test": "tests/test_no.py::test_x"}}, "no test file"),
        (
            "3 s <!-- claim: x -->",
            {"x": {"test": "tests/../test_speed.py::test_x"}},
            "no test file",
        ),
        (
            "3 s <!-- claim: x -->",
            {"x": {"test": "tests/test_speed.py::test_no"}},
            "no test test_no",
        ),
        ("3 s <!-- claim: x -->", {"x": {"test": "tests/test_speed.py::helper"}}, "no test helper"),
        ("3 s <!-- claim: x -->", {"x": {"because": "it is"}}, "a proof is a test, or a file"),
        ("3 s <!-- claim: x -->", {"x": {}}, "a proof is a test, or a file"),
        ("2.8× <!-- claim: x -->", RATIO, "the page has 2.8, the files 2.714"),
        ("2.7× and 3× <!-- claim: x -->", RATIO, "the page has 2.7, 3, the files 2.714"),
        ("no number <!-- claim: x -->", RATIO, "the page has , the files 2.714"),
        (
            "2.7× <!-- claim: x -->",
            {"x": {"file": "no.json", "values": ["a"]}},
            "FileNotFoundError",
        ),
        ("2.7× <!-- claim: x -->", {"x": {"file": "speed.json", "values": ["c"]}}, "KeyError"),
        ("2.7× <!-- claim: x -->", {"x": {"file": "speed.json"}}, "no values of speed.json"),
        (
            "<!-- claim: x -->\n| | b | c | d |\n|-|-|-|-|\n| a | 2.71 (2.6–2.8) | 7 | 104 |",
            TABLE,
            "the page has 2.71, 2.6, 2.8, 7, 104, the files 2.714, 2.6, 2.8, 104.0, 7.0",
        ),
    ],
)
def test_a_wrong_proof_is_found(
    page: str, proof: dict[str, dict[str, object]], problem: str, root: Path
) -> None:
    assert any(problem in found for found in problems({"p.md": page}, proof, root))


def test_new_values_replace_the_figures_of_a_table(root: Path) -> None:
    page = (
        "9 of 9 <!-- claim: x -->\n\n<!-- claim: x -->\n| a | 5 | `b 5` |\n|-|-|-|\n"
        "| 1 | 0.00 (0–1.0) | 9 |\n| `2` 3 | `4` | 0.0 s |\n"
    )
    filled = fill(page, TABLE, root)
    assert filled.startswith("9 of 9 <!-- claim: x -->\n\n<!-- claim: x -->\n| a | 5 | `b 5` |\n")
    assert filled.endswith("| 1 | 2.71 (3–2.8) | 104 |\n| `2` 3 | `4` | 7.0 s |\n")


def test_a_table_with_another_number_of_figures_is_not_filled(root: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        fill("<!-- claim: x -->\n| a | b |\n|-|-|\n| 1 | 3 |\n", TABLE, root)


@pytest.mark.parametrize(
    ("figure", "value", "same"),
    [
        ("2.7", 2.714, True),
        ("2.8", 2.714, False),
        ("27,940", 27940.3, True),
        ("-168", -168.4, True),
        ("+0.5", 0.46, True),
        ("168", -168.0, False),
        ("500", 499.4, False),
    ],
)
def test_a_figure_is_its_value_rounded_to_the_decimals_of_the_page(
    figure: str, value: float, same: bool
) -> None:
    assert shows(figure, value) is same


def test_code_blocks_are_no_paragraphs() -> None:
    page = "a\n```sh\nb\n\nc\n```\nd\ne\n\n| f |\n"
    assert [*paragraphs(page)] == [Paragraph(1, "a"), Paragraph(7, "d\ne"), Paragraph(10, "| f |")]
