"""A study as `border-plot` shows it: the best score over the cost, each trial's score against its
cost, and the importance of hyperparameters.

Optuna, plotext and matplotlib are imported by the functions that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from border_cli.analysis.tables import Section
from border_cli.errors import CheckpointError
from border_cli.tune.store import imported_optuna
from border_cli.tune.table import counts, interval
from border_cli.tune.trials import TrialRow, ranked, read_study, read_trials

BEST = "best so far"  # at the full budget
MARKS = {"complete": "o", "pruned": "x", "waiting": "+", "running": "."}
LEAST_TRIALS = 8  # of which an importance can be told
BEST_SHARE = 0.25  # of trials, whose values are compared with those of all
IMPORTANCE = "how far the values of the best quarter of trials differ from those of all (PED-ANOVA)"
MOST_TRIALS = 10  # in the terminal


class StudyReport:
    """What is drawn of a study. Raises CheckpointError where no trial has a score yet."""

    def __init__(self, root: Path) -> None:
        study, every = read_study(root), read_trials(root)
        self.best = ranked(every)
        if not self.best:
            raise CheckpointError(f"{root}: no trial of this study has a score yet")
        self.title = f"{study.name}: {study.agent} on {study.env}"
        self.x_name = f"cost in % of all trials at {study.budgets[-1]:,} {study.steps_name}"
        self.importance = importance(self.best)
        self._study, self._every = study, every

    def points(self) -> dict[str, tuple[list[float], list[float]]]:
        """Costs and scores: of trials by their status, and of the best one after each that ended,
        over the cost of all by then."""
        found: dict[str, tuple[list[float], list[float]]] = {}
        for row in self.best:
            self._put(found, row.status, self._cost(row), row.score)
        ended = sorted((row for row in self._every if row.ended), key=lambda row: row.ended)
        for cost, row in zip(accumulate(map(self._cost, ended)), ended, strict=True):
            if row.status == "complete":
                best = max([row.score, *found.get(BEST, ([], []))[1]])
                self._put(found, BEST, cost, best)
        return found

    def _put(self, found: Any, name: str, x: float, y: float) -> None:
        at, values = found.setdefault(name, ([], []))
        at.append(x)
        values.append(y)

    def _cost(self, row: TrialRow) -> float:
        return 100 * self._study.share([row])

    def sections(self) -> list[Section]:
        """The tables: trials, and what matters."""
        trials = [
            [str(row.number), row.values, row.status, interval(row.scores)] for row in self.best
        ]
        head = ["trial", "hyperparameters", "status", "score"]
        shares = [[name, f"{100 * share:.0f} %"] for name, share in self.importance.items()]
        return [
            Section("Trials", counts(self._study, self._every), head, trials, 2, MOST_TRIALS),
            Section("Importance", IMPORTANCE, ["hyperparameter", "importance"], shares, 1),
        ]

    def chart(self, width: int) -> str:
        """Scores over costs as text."""
        from border_cli.analysis.chart import LINE, begin, built

        plot = begin(self.x_name)
        for name, (x, y) in self.points().items():
            draw = plot.plot if name == BEST else plot.scatter
            draw(x, y, marker=MARKS.get(name, LINE), label=name)
        return built(width)

    def drawn(self, kind: str, size: tuple[float, float] | None) -> bytes:
        """A png, svg or pdf: scores over costs, and the importance; `size` in inches."""
        from border_cli.analysis.drawing import PANEL_INCHES, saved

        return saved(partial(self._picture, size or (2 * PANEL_INCHES[0], PANEL_INCHES[1])), kind)

    def _picture(self, size: tuple[float, float]) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        scores, shares = figure.subplots(1, 2)
        for name, (x, y) in self.points().items():
            scores.plot(x, y, MARKS.get(name, "-"), label=name, drawstyle="steps-post")
        scores.set(title=self.title, xlabel=self.x_name, ylabel="score")
        scores.legend(loc="lower right")
        shares.barh([*self.importance], [100 * share for share in self.importance.values()])
        shares.invert_yaxis()
        shares.set(title="hyperparameters", xlabel="importance in % (PED-ANOVA)")
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
        kinds = {key: optuna.distributions.IntDistribution(0, len(values[key])) for key in each}
        study.add_trial(optuna.create_trial(params=params, distributions=kinds, value=-rank))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
    found: dict[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return found


def _in_order(item: tuple[str, str]) -> tuple[float, str]:
    try:
        return float(item[1]), ""
    except ValueError:
        return 0.0, item[1]
