"""`best.yaml`: the settings of a study's winner, to be used as an experiment or as a tuned file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from textwrap import wrap
from typing import Any

from border_cli.config.compose import Composer
from border_cli.config.resolved import yaml_text
from border_cli.registry import GROUPS
from border_cli.settings.base import flat
from border_cli.settings.run import RunConfig
from border_cli.tune.table import interval
from border_cli.tune.trials import Study, TrialRow
from border_cli.words import visible

COMMENT_WIDTH = 98  # characters


def best_yaml(
    composer: Composer, study: Study, winner: TrialRow, config: RunConfig, fresh: Sequence[float]
) -> str:
    """The content of `best.yaml`: what the winner's `config` has that differs from the defaults, or
    from what tuned files set, so that it means the same above a tuned file and in its place.

    `fresh`: its scores on fresh seeds.
    """
    pair = [f"agent={study.agent}", f"env={study.env}"]
    usual, chosen = _options(composer.job(pair).config), _options(config)
    others = {group: option for group, option in chosen.items() if option != usual[group]}
    typed = [*pair, *(f"{group}={option}" for group, option in others.items())]
    bases = [flat(composer.job([*typed, *more]).config) for more in ([], ["~tuned"])]
    content: dict[str, Any] = {}
    if others:
        content["defaults"] = [{f"override /{each}": option} for each, option in others.items()]
    for key, value in flat(config).items():
        *places, name = key.split(".")
        differs = any((key, value) not in each.items() for each in bases)
        if places and places[0] in GROUPS and differs and name != "option":
            reduce(lambda node, place: node.setdefault(place, {}), places, content)[name] = value
    comment = [
        f"Trial {winner.number} of {study.name}, {winner.ended}: {winner.values}",
        f"Score {interval(fresh)} over {len(fresh)} fresh seeds, {interval(winner.scores)} in the "
        f"study, after {study.budgets[-1]:,} {study.steps_name}.",
        f"As conf/experiment/best.yaml: border-train -cd conf experiment=best {' '.join(pair)}",
        f"As conf/tuned/{study.agent}_{study.env}.yaml: border-train -cd conf {' '.join(pair)}",
    ]
    if others:
        comment.pop()  # tuned files cannot choose these options
    lines = [each for line in comment for each in _broken(visible(line))]
    return "".join(f"# {line}\n" for line in ["@package _global_", *lines]) + yaml_text(content)


def _broken(line: str) -> list[str]:
    """At spaces, as far as there are any."""
    return wrap(line, COMMENT_WIDTH, break_long_words=False, break_on_hyphens=False)


def _options(config: RunConfig) -> dict[str, str | None]:
    """The option chosen of each group."""
    return {group: getattr(getattr(config, group), "option", None) for group in GROUPS}
