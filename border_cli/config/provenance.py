"""Which file each choice came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from border_cli.config.job import Source
from border_cli.config.sources import TUNED
from border_cli.config.tuned import Part
from border_cli.registry import ENVS


def sources(parts: Sequence[Part], choices: Mapping[str, object]) -> list[Source]:
    """One entry per chosen file, in the order of merging; the primary configuration first.

    `choices` are Hydra's: of a group that chooses several (`recorder`) it knows nothing, and of
    a file that another one inherits from neither. Of `tuned` every file counts.
    """
    found = []
    for part in parts:
        group, _, name = part.path.rpartition("/")
        ours = part.file and not group.startswith("hydra/")
        chosen = choices.get(group, name) == name or group == TUNED
        if ours and chosen and (group or _primary(part, parts)):
            found.append(Source(group or "config", name, str(part.file), part.of_agent))
    return sorted(dict.fromkeys(found), key=lambda source: source.group != "config")


def _primary(part: Part, parts: Sequence[Part]) -> bool:
    """The last file outside the groups; those before it are what it builds on."""
    outside = [each for each in parts if "/" not in each.path and each.file]
    return part is outside[-1]


def values_of_another_pair(found: Sequence[Source]) -> list[str]:
    """The tuned pairs that took part although another agent or env is chosen.

    Without a preset (`env.id=…`) there is no pair to compare with.
    """
    chosen = {each.group: each.choice for each in found}
    if chosen.get("env") in ENVS.names():
        return []
    pair = f"{chosen.get('agent')}_{chosen.get('env')}"
    tuned = [each.choice for each in found if each.group == TUNED and not each.of_agent]
    return [each for each in tuned if each != pair]


def tuned_files(found: Sequence[Source]) -> list[str]:
    """The files of values for the agent and for the pair that took part; later ones win."""
    return [source.file for source in found if source.group == TUNED]
