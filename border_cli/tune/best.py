"""`best.yaml`: the settings of a study's winner, to be used as an experiment or as a tuned file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from border_cli.config.compose import Composer
from border_cli.config.resolved import yaml_text
from border_cli.registry import GROUPS
from border_cli.settings.base import flat
from border_cli.settings.run import RunConfig
from border_cli.tune.table import interval
from border_cli.tune.trials import Study, TrialRow


def best_yaml(
    composer: Composer, study: Study, winner: TrialRow, config: RunConfig, fresh: Sequence[float]
) -> str:
    """The content of `best.yaml`: what the winner's `config` has that differs from the defaults, or
    from what tuned files set, so that it means the same above a tuned file and in its place.

    `fresh`: its scores on fresh seeds.
    """
    pair = [f"agent={study.agent}", f"env={study.env}"]
    bases = [composer.job([*pair, *more]).config for more in ([], ["~tuned"])]
    usual = [flat(each) for each in bases]
    content: dict[str, Any] = {}
    for group in GROUPS:
        chosen = getattr(getattr(config, group), "option", None)
        if chosen != getattr(getattr(bases[0], group), "option", None):
            content.setdefault("defaults", []).append({f"override /{group}": chosen})
    for key, value in flat(config).items():
        group, _, name = key.partition(".")
        differs = any(each.get(key) != value for each in usual)
        if group in GROUPS and differs and name != "option":
            content.setdefault(group, {})[name] = value
    comment = [
        "@package _global_",
        f"Trial {winner.number} of {study.name}, {winner.ended}: {winner.values}",
        f"Score {interval(fresh)} over {len(fresh)} fresh seeds, {interval(winner.scores)} in the "
        f"study, after {study.budgets[-1]:,} {study.steps_name}.",
        f"As conf/experiment/best.yaml: border-train -cd conf experiment=best {' '.join(pair)}",
        f"As conf/tuned/{study.agent}_{study.env}.yaml: border-train -cd conf {' '.join(pair)}",
    ]
    return "\n".join(f"# {line}" for line in comment) + f"\n{yaml_text(content)}"
