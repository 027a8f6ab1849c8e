"""A study in the terminal while it runs: a stand-in."""

from __future__ import annotations

from collections.abc import Sequence

from border_cli.messages import say
from border_cli.sweep.panel import JobView
from border_cli.tune.trials import Study, TrialRow


class StudyPanel:
    def __init__(self, study: Study) -> None:
        self._study = study

    def __enter__(self) -> StudyPanel:
        return self

    def __exit__(self, *rest: object) -> None:
        pass

    def event(self, text: str) -> None:
        say(text)

    def show(self, running: Sequence[JobView], rows: Sequence[TrialRow]) -> None:
        pass
