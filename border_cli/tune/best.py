"""`best.yaml`: the settings of a study's winner, to be used as an experiment or as a tuned file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from border_cli.config.compose import Composer
from border_cli.config.job import plain, yaml_text
from border_cli.registry import GROUPS
from border_cli.settings.run import RunConfig
from border_cli.step_processor.config import MULTI_STEP, ONE_STEP
from border_cli.tune.table import score_of
from border_cli.tune.trials import Study, TrialRow


def best_yaml(
    composer: Composer, study: Study, winner: TrialRow, config: RunConfig, fresh: Sequence[float]
) -> str:
    """The content of `best.yaml`: what the winner's `config` has that differs from the defaults, or
    from what tuned files set, so that it means the same above a tuned file and in its place.

    `fresh`: its scores on fresh seeds.
    """
    pair = [f"agent={study.agent}", f"env={study.env}"]
    chosen, usual = _groups(config), _groups(composer.job(pair).config)
    others = {
        group: each["option"]
        for group, each in chosen.items()
        if len(options := {each.get("option"), usual[group].get("option")}) > 1
        and not options <= {ONE_STEP, MULTI_STEP}  # `n_steps` says which
    }
    typed = [*pair, *(f"{group}={option}" for group, option in others.items())]
    bases = [_groups(composer.job([*typed, *more]).config) for more in ([], ["~tuned"])]
    listed = [{f"override /{group}": option} for group, option in others.items()]
    content: dict[str, Any] = {"defaults": listed} if listed else {}
    for group, settings in chosen.items():
        for item in settings.items():
            if any(item not in base[group].items() for base in bases):
                content.setdefault(group, {}).update([item])
    command = f"border-train -cd conf {' '.join(pair)}"
    comment = f"""\
# @package _global_
# Trial {winner.number} of {study.name!r}: {score_of(winner, fresh)}
# As conf/experiment/best.yaml: {command} experiment=best
"""
    if not others:  # which tuned files cannot choose
        comment += f"# As conf/tuned/{study.agent}_{study.env}.yaml: {command}\n"
    return comment + yaml_text(content)


def _groups(config: RunConfig) -> dict[str, dict[str, Any]]:
    return {group: plain(getattr(config, group)) for group in GROUPS}
