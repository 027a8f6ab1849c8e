"""`best.yaml`: the settings of a study's winner, for use as an experiment or as a tuned file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from border_cli.config.compose import Composer
from border_cli.config.files import takes_several
from border_cli.config.job import plain, yaml_text
from border_cli.registry import GROUPS
from border_cli.settings.run import RunConfig
from border_cli.step_processor.config import MULTI_STEP, ONE_STEP
from border_cli.tune.table import score_of
from border_cli.tune.trials import Study, TrialRow


def best_yaml(
    composer: Composer, study: Study, winner: TrialRow, config: RunConfig, fresh: Sequence[float]
) -> str:
    """Returns the content of `best.yaml`: the settings in groups of the winner's `config` that
    differ from the defaults or from the tuned file. It works on top of a tuned file and in place of
    it. Settings outside groups, such as `device` or `checkpoint`, are left out.

    `fresh` contains the winner's scores on fresh seeds.
    """
    pair = [f"agent={study.agent}", f"env={study.env}"]
    winning, default = _groups(config), _groups(composer.job(pair).config)
    other_options = {
        group: values["option"]
        for group, values in winning.items()
        if len(options := {values.get("option"), default[group].get("option")}) > 1
        and not options <= {ONE_STEP, MULTI_STEP}  # implied by `n_steps`
    }
    overrides = [*pair, *(f"{group}={option}" for group, option in other_options.items())]
    bases = [_groups(composer.job([*overrides, *extra]).config) for extra in ([], ["~tuned"])]
    defaults_list = [{f"override /{group}": option} for group, option in other_options.items()]
    content: dict[str, Any] = {"defaults": defaults_list} if defaults_list else {}
    for group, settings in winning.items():
        for item in settings.items():
            if any(item not in base[group].items() for base in bases):
                content.setdefault(group, {}).update([item])
    command = f"border-train -cd conf {' '.join(pair)}"
    comment = f"""\
# @package _global_
# Trial {winner.number} of {study.name!r}: {score_of(winner, fresh)}
# As conf/experiment/best.yaml: {command} experiment=best
"""
    if not other_options:  # tuned files cannot select options
        comment += f"# As conf/tuned/{study.agent}_{study.env}.yaml: {command}\n"
    return comment + yaml_text(content)


def _groups(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Returns the settings of each group, without recorders and callbacks: their options would have
    to be listed as well, and a study does not search them."""
    return {group: plain(getattr(config, group)) for group in GROUPS if not takes_several(group)}
