"""One sentence about what held a run up, and the settings that would move it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from border_cli.core.config import RunConfig
from border_cli.core.timing import shares
from border_cli.trainer import losses
from border_cli.trainer.losses import Facts, Loss


@dataclass(frozen=True, slots=True)
class _Part:
    """Sections of the learner's time that the same settings move, and who speaks about them."""

    sections: tuple[str, ...]
    say: Callable[[Facts, str], Loss]
    weight: float = 1.0

    def share(self, facts: Facts) -> float:
        return sum(facts.learner.get(each, 0.0) for each in self.sections)


WAITING = _Part(("wait",), losses.waiting)
ACTING = _Part(("wait",), losses.acting)
STARVING = _Part(("update", "sample", "priorities", "push"), losses.starving)
WORKING = (
    _Part(("update",), losses.updating, weight=0.5),  # the work itself: it could not be gone
    _Part(("sample", "priorities"), losses.drawing),
    _Part(("push",), losses.pushing),
)
ELSE = (
    _Part(("evaluate",), losses.evaluating),
    _Part(("save",), losses.saving),
    _Part(("record",), losses.recording),
    _Part(("sync",), losses.publishing),
    _Part(("other",), losses.looping),
)


def bottleneck(
    config: RunConfig,
    *,
    learner: Mapping[str, float],
    actors: Mapping[str, float],
    device: str,
    cores: int,
    threads: int,
) -> str | None:
    """Names what took most of the learner's time, and settings that would reduce it.

    `learner` and `actors` are seconds per section, `device` is where updates were made, and
    `threads` with how many. None where no time passed.
    """
    facts = Facts(
        config,
        learner=shares(learner),
        actors=shares(actors),
        device=device,
        cores=cores,
        threads=threads,
    )
    if not facts.learner:
        return None
    parts = [
        ACTING if facts.in_turn else WAITING,
        *([STARVING] if facts.starves else WORKING),
        *ELSE,
    ]
    largest = max(parts, key=lambda part: part.weight * part.share(facts))
    return str(largest.say(facts, f"{100 * largest.share(facts):.0f} %"))
