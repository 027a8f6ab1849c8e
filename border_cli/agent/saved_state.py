"""Loads the saved state of one agent into another, or names what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import nn

from border_cli.agent.learner_config import LearnerConfig
from border_cli.errors import CheckpointError

STATISTICS = {"obs": "normalize_obs", "returns": "normalize_reward"}  # and the settings of each


class Part(Protocol):
    """A part of an agent that a checkpoint holds: a module or an optimizer."""

    def state_dict(self) -> Mapping[str, Any]:
        """Itself and not copies."""

    def load_state_dict(self, state: Mapping[str, Any]) -> object:
        """Restores what `state_dict` gave."""


class OptionalPart(nn.Module):
    """A part that only some settings learn; fixed, it has nothing to save."""

    setting: ClassVar[str]  # that says whether it is learned
    learned: bool


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state that is being loaded. All raise CheckpointError."""

    content: Mapping[str, Any]
    title: str  # its name in messages
    agent: str  # the one that loads it, as `agent=…` has it
    settings: LearnerConfig  # of that agent

    def refuse_other_form(self, normalised: Set[str]) -> None:
        """Refuses what fits in size and means something else; `normalised` names the statistics of
        this agent."""
        for name, mine in self.settings.semantic_settings.items():
            if self.content.get(name, mine) != mine:
                self._refuse_setting(name, mine, self.content[name])
        asked = {STATISTICS[name] for name in normalised}
        with self.fitting("statistics"):
            entries = self.content.get("statistics", ())
            others = {STATISTICS[entry.partition(".")[0]] for entry in entries}
        for setting in sorted(asked ^ others):
            pair = (str(setting in each).lower() for each in (asked, others))
            self._refuse_setting(setting, *pair)

    def _refuse_setting(self, name: str, mine: object, other: object) -> None:
        raise CheckpointError(f"{self.title} does not fit agent.{name}={mine}: it has {other}")

    def entry(self, name: str) -> Any:
        """One entry of the state."""
        if name not in self.content:
            known = [key for key, each in self.content.items() if isinstance(each, Mapping)]
            listed = ", ".join(known) or "no network"
            raise CheckpointError(
                f"{self._unfit}: it has no {name!r}, but {listed}; it may be another agent's"
            )
        return self.content[name]

    def load(self, part: Part, name: str) -> None:
        """Loads the entry of this name into a part."""
        entry = self.entry(name)
        with self.fitting(part.setting if isinstance(part, OptionalPart) else name):
            part.load_state_dict(entry)

    def load_weights(self, part: nn.Module, name: str) -> None:
        """Restores a part for a new training; an optional one that only one of the two agents
        learned stays as the settings say."""
        if not isinstance(part, OptionalPart) or (part.learned and self.content.get(name)):
            self.load(part, name)

    @contextmanager
    def fitting(self, what: str) -> Iterator[None]:
        """Turns errors within the block into a CheckpointError that names the part."""
        try:
            yield
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{self._unfit}: {what}: {reason} (agent.hidden, agent.layer_norm, "
                "agent.num_critics, agent.dueling and the like must be those of the saved agent, "
                "and so must the spaces of the environment)"
            ) from error

    @property
    def _unfit(self) -> str:
        return f"{self.title} does not fit agent={self.agent}"
