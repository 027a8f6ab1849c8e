"""A study as `border-plot` shows it: the scores of its trials over what all of them have cost, and
the importance of hyperparameters.

Optuna, plotext and matplotlib are imported by the functions that use them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from border_cli.analysis.tables import Section
from border_cli.errors import CheckpointError
from border_cli.tune.store import imported_optuna
from border_cli.tune.trials import (
    COMPLETE,
    FAILED,
    PRUNED,
    RUNNING,
    WAITING,
    TrialRow,
    ranked,
    read_study,
    read_trials,
)
from border_cli.words import visible

BEST = "best so far"  # at the full budget
MARKS = {BEST: "-", COMPLETE: "o", PRUNED: "x", WAITING: "+", RUNNING: "."}
LEAST_TRIALS = 8  # of which an importance can be told
BEST_SHARE = 0.25  # of trials, whose values are compared with those of all
IMPORTANCE = "how far the values of the best quarter of trials differ from those of all (PED-ANOVA)"


class StudyReport:
    """What is drawn of a study. Raises CheckpointError where no trial has a score yet."""

    def __init__(self, root: Path) -> None:
        self.study, self.rows = read_study(root), read_trials(root)
        best = ranked(self.rows)
        if not best:
            raise CheckpointError(f"{root}: no trial of this study has a score yet")
        self.title = visible(f"{self.study.name}: {self.study.agent} on {self.study.env}")
        full = f"{self.study.budgets[-1]:,} {self.study.steps_name}"
        self.x_name = f"cost in % of all trials at {full}"
        self.importance = importance(best)

    def points(self) -> dict[str, list[tuple[float, float]]]:
        """Costs of the study by the end of each trial, those that have not ended last, and scores:
        of the trials by status, and of the best one by then, in steps."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in MARKS}
        best: list[float] = []
        rows = sorted(self.rows, key=lambda row: (not row.ended, row.ended))
        for num, row in enumerate(rows, 1):
            cost = 100 * self.study.share(rows[:num])
            found[BEST] += [(cost, each) for each in best]
            if not row.scores or row.status == FAILED:
                continue
            found[row.status].append((cost, row.score))
            if row.status == COMPLETE and row.score > max(best, default=-math.inf):
                best = [row.score]
                found[BEST].append((cost, row.score))
        return {name: each for name, each in found.items() if each}

    def chart(self, width: int) -> str:
        """Scores over costs as text."""
        from border_cli.analysis.chart import LINE, begin, built

        plot, signs = begin(self.x_name), []
        for name, points in self.points().items():
            draw = plot.plot if name == BEST else plot.scatter
            draw(*zip(*points, strict=True), marker=LINE if name == BEST else MARKS[name])
            signs.append(f"{MARKS[name]} {name}")
        return f"{built(width)}\n{'   '.join(signs)}"

    def shares(self) -> Section:
        """The table of what matters."""
        shares = [[name, f"{100 * share:.0f} %"] for name, share in self.importance.items()]
        return Section("Importance", IMPORTANCE, ["hyperparameter", "importance"], shares, 1)

    def drawn(self, kind: str, size: tuple[float, float] | None) -> bytes:
        """A png, svg or pdf: scores over costs, and the importance; `size` in inches."""
        from border_cli.analysis.drawing import PANEL_INCHES, saved

        return saved(partial(self._picture, size or (2 * PANEL_INCHES[0], PANEL_INCHES[1])), kind)

    def _picture(self, size: tuple[float, float]) -> Any:
        from matplotlib.figure import Figure

        from border_cli.analysis.drawing import plain

        figure = Figure(figsize=size, layout="constrained")
        scores, shares = figure.subplots(1, 2)
        for name, points in self.points().items():
            scores.plot(*zip(*points, strict=True), MARKS[name], label=name)
        scores.set(title=plain(self.title), xlabel=self.x_name, ylabel="score")
        scores.legend()
        shares.barh([*self.importance], [100 * share for share in self.importance.values()])
        shares.invert_yaxis()
        shares.set(title="PED-ANOVA", xlabel="importance in %")
        return figure


def importance(rows: Sequence[TrialRow]) -> Mapping[str, float]:
    """The importance of each setting, the largest first, from trials in the order of `ranked`;
    empty where they are too few.

    Watanabe, Bansal and Hutter 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance
    in Arbitrary Subspaces". Scores and values count by their ranks alone: those of several budgets
    must, and a log scale makes no difference then.
    """
    optuna = imported_optuna()
    if len(rows) < LEAST_TRIALS:
        return {}
    settings = [dict(each.split("=", 1) for each in row.settings) for row in rows]
    values: dict[str, list[str]] = {}
    for key, value in sorted((item for each in settings for item in each.items()), key=_in_order):
        values.setdefault(key, []).append(value)
    study = optuna.create_study(direction="maximize")
    for rank, each in enumerate(settings):
        params = {key: values[key].index(value) for key, value in each.items()}
        most = {key: values[key].index(values[key][-1]) for key in each}  # 0: there is one value
        kinds = {key: optuna.distributions.IntDistribution(0, most[key]) for key in each}
        study.add_trial(optuna.create_trial(params=params, distributions=kinds, value=-rank))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return found


def _in_order(item: tuple[str, str]) -> tuple[float, str]:
    try:
        return float(item[1]), ""
    except ValueError:
        return 0.0, item[1]
