"""Which file each choice came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from border_cli.config.job import Source
from border_cli.config.loader import Part


def sources(parts: Sequence[Part], choices: Mapping[str, object]) -> list[Source]:
    """One entry per chosen file, in the order of merging; the primary configuration first.

    `choices` are Hydra's: of a group that chooses several (`recorder`) it knows nothing, and of
    a file that another one inherits from neither.
    """
    found = []
    for part in parts:
        group, _, name = part.path.rpartition("/")
        ours = part.file and not group.startswith("hydra/")
        if ours and (group or _primary(part, parts)) and choices.get(group, name) == name:
            found.append(Source(group or "config", name, str(part.file)))
    return sorted(dict.fromkeys(found), key=lambda source: source.group != "config")


def _primary(part: Part, parts: Sequence[Part]) -> bool:
    """The last file outside the groups; those before it are what it builds on."""
    outside = [each for each in parts if "/" not in each.path and each.file]
    return part is outside[-1]


def tuned_file(found: Sequence[Source]) -> str | None:
    """The file of best values that took part."""
    files = [source.file for source in found if source.group == "tuned"]
    return files[-1] if files else None
