"""Loading of saved agent states, with errors that name what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from border_cli.agent.learner_config import LearnerConfig
from border_cli.errors import CheckpointError
from border_cli.nn.backend import Part

STATISTICS = {"obs": "normalize_obs", "returns": "normalize_reward"}  # setting of each name


class OptionalPart:
    """A part that is learned or fixed, depending on a setting. Only learned parts are saved."""

    setting: ClassVar[str]  # setting that determines whether the part is learned
    learned: bool


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state to be loaded. All methods raise CheckpointError if it does not fit."""

    content: Mapping[str, Any]
    title: str  # name of the state in messages
    agent: str  # name of the loading agent, as passed to `agent=…`
    settings: LearnerConfig  # settings of the loading agent
    load_part: Callable[[Part, Any], None]  # loads an entry into a part

    def check_compatible(self, normalised: Set[str]) -> None:
        """Rejects states whose shapes fit but whose meaning differs. `normalised` contains the
        names of the loading agent's statistics."""
        for name, value in self.settings.semantic_settings.items():
            if self.content.get(name, value) != value:
                self._refuse_setting(name, value, self.content[name])
        required = {STATISTICS[name] for name in normalised}
        with self.fitting("statistics"):
            entries = self.content.get("statistics", ())
            saved = {STATISTICS[entry.partition(".")[0]] for entry in entries}
        for setting in sorted(required ^ saved):
            pair = (str(setting in group).lower() for group in (required, saved))
            self._refuse_setting(setting, *pair)

    def _refuse_setting(self, name: str, value: object, saved: object) -> None:
        raise CheckpointError(f"{self.title} does not fit agent.{name}={value}: it has {saved}")

    def entry(self, name: str) -> Any:
        """Returns an entry of the state."""
        if name not in self.content:
            parts = [key for key, value in self.content.items() if isinstance(value, Mapping)]
            listed = ", ".join(parts) or "no network"
            raise CheckpointError(
                f"{self._misfit}: it has no {name!r}, but {listed}; it may be from another agent"
            )
        return self.content[name]

    def load(self, part: Part, name: str) -> None:
        """Loads the entry `name` into a part."""
        entry = self.entry(name)
        with self.fitting(part.setting if isinstance(part, OptionalPart) else name):
            self.load_part(part, entry)

    def load_weights(self, part: Part, name: str) -> None:
        """Loads a part to start a new training. An optional part keeps its initial value unless
        both agents learn it."""
        if not isinstance(part, OptionalPart) or (part.learned and self.content.get(name)):
            self.load(part, name)

    @contextmanager
    def fitting(self, what: str) -> Iterator[None]:
        """Converts errors in the block to a CheckpointError that names the part `what`."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{self._misfit}: {what}: {reason} (agent.hidden, agent.layer_norm, "
                "agent.num_critics, agent.dueling and similar settings must match the saved "
                "agent, and so must the spaces of the environment)"
            ) from error

    @property
    def _misfit(self) -> str:
        return f"{self.title} does not fit agent={self.agent}"
