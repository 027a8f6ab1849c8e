"""A study as `border-plot` shows it: the scores of its trials over what all of them have cost, and
the importance of hyperparameters.

Optuna, plotext and matplotlib are imported by the functions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from border_cli.recorder.terminal import make_console, say
from border_cli.tune.store import imported_optuna
from border_cli.tune.table import print_best
from border_cli.tune.trials import Study, TrialRow, ranked

LEAST_TRIALS = 8  # of which an importance can be told
BEST_SHARE = 0.25  # of trials, whose values are compared with those of all
KEY = "line: best at the full budget   o full budget   x smaller budget"

Points = NDArray[np.float64]  # [2, N], costs and scores


def show(study: Study, rows: Sequence[TrialRow], files: Sequence[Path]) -> None:
    """Prints scores over costs where no file has them, the best trials, what matters, and the
    files."""
    import plotext

    from border_cli.analysis.chart import LINE, begin, built

    if not files:
        best, full, smaller = points(study, rows)
        begin(cost_name(study))
        plotext.plot(*best, marker=LINE)
        plotext.scatter(*full, marker="o")
        plotext.scatter(*smaller, marker="x")
        console = make_console()
        say(console, Text.from_ansi(built(console.width)))
        say(console, KEY)
    shares = [f"{share:4.0%}  {name}" for name, share in importance(ranked(rows)).items()]
    found = "\n".join(shares) or f"from {LEAST_TRIALS} trials on"
    print_best(study, rows, ("importance", found), *(("wrote", str(file)) for file in files))


def points(study: Study, rows: Sequence[TrialRow]) -> tuple[Points, Points, Points]:
    """Costs of the study in % by the end of each trial, those that go on last, and scores: the best
    one by then at the full budget, those of all trials there, and those of the others."""
    rows = sorted((row for row in rows if row.scores), key=lambda row: (not row.ended, row.ended))
    budget = np.array([row.budget for row in rows])
    cost = 100 * budget.cumsum() / study.full_grid
    found = np.array([cost, [row.score for row in rows]])  # [2, N]
    full = found[:, budget == study.budgets[-1]]
    return np.maximum.accumulate(full, axis=1), full, found[:, budget < study.budgets[-1]]


def cost_name(study: Study) -> str:
    """Says what costs are."""
    return f"cost in % of all trials at {study.budgets[-1]:,} {study.steps_name}"


def drawn(
    study: Study, rows: Sequence[TrialRow], kind: str, size: tuple[float, float] | None
) -> bytes:
    """A png, svg or pdf: scores over costs, and the importance; `size` in inches."""
    from matplotlib.figure import Figure

    from border_cli.analysis.drawing import saved

    def picture() -> Figure:
        figure = Figure(figsize=size or (9.6, 3.6), layout="constrained")
        scores, shares = figure.subplots(1, 2)
        best, full, smaller = points(study, rows)
        scores.plot(*best, "-", *full, "o", *smaller, "x")
        scores.legend(["best at the full budget", "full budget", "smaller budget"])
        scores.set(xlabel=cost_name(study), ylabel="score", title=f"{study.agent} on {study.env}")
        importances = importance(ranked(rows))
        shares.barh([*importances], [*importances.values()])
        shares.invert_yaxis()
        shares.set(xlabel="importance (PED-ANOVA)")
        return figure

    return saved(picture, kind)


def importance(rows: Sequence[TrialRow]) -> Mapping[str, float]:
    """The importance of each setting, the largest first, from trials in the order of `ranked`;
    empty where they are too few.

    Watanabe, Bansal and Hutter 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance
    in Arbitrary Subspaces". Scores and values count by their ranks alone: those of several budgets
    must, and a log scale makes no difference then.
    """
    imported_optuna()
    from optuna import create_study, create_trial
    from optuna.distributions import IntDistribution
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if len(rows) < LEAST_TRIALS:
        return {}
    settings = [dict(each.split("=", 1) for each in row.settings) for row in rows]
    values: dict[str, list[str]] = {}
    for key, value in sorted({item for each in settings for item in each.items()}, key=_in_order):
        values.setdefault(key, []).append(value)
    kinds: dict[str, Any] = {key: IntDistribution(0, len(each) - 1) for key, each in values.items()}
    study = create_study(direction="maximize")
    for rank, each in enumerate(settings):
        params = {key: values[key].index(value) for key, value in each.items()}
        used = {key: kinds[key] for key in each}
        study.add_trial(create_trial(params=params, distributions=used, value=-rank))
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    return dict(get_param_importances(study, evaluator=evaluator))


def _in_order(item: tuple[str, str]) -> tuple[float, str]:
    try:
        return float(item[1]), ""
    except ValueError:
        return 0.0, item[1]
