"""Loads the saved state of one agent into another, or names what does not fit."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from border_cli.agent.learner_config import LearnerConfig
from border_cli.errors import CheckpointError

log = logging.getLogger(__name__)

STATISTICS = {"obs": "normalize_obs", "returns": "normalize_reward"}  # and the settings of each
MATMUL = "matmul"  # the entry that says with which products a state was computed


def differences(saved: Mapping[str, Tensor], mine: Mapping[str, Tensor]) -> list[str]:
    """The settings in which two networks differ; empty if they have the same sizes."""
    theirs, ours = _dense_shapes(saved), _dense_shapes(mine)
    found = []
    normed = [any(_is_norm(key) for key in each) for each in (saved, mine)]
    if normed[0] != normed[1]:
        found.append(f"agent.layer_norm (saved with {str(normed[0]).lower()})")
    if _torso(saved) != _torso(mine):
        found.append("agent.network, or the images of the environment")
    missing = {_form(key) for key in mine if not _is_norm(key)} - {_form(key) for key in saved}
    if missing or {_form(key) for key in theirs} != {_form(key) for key in ours}:
        form = "its layers, by the agent or by settings such as agent.dueling and agent.noisy"
        return [*found, form]
    if not theirs or not ours:
        return found
    for what, (first, second) in {
        "agent.hidden": (_outputs(theirs)[:-1], _outputs(ours)[:-1]),
        "inputs, from the spaces of the environment": (_inputs(theirs), _inputs(ours)),
        "outputs, from the action space and settings such as agent.num_atoms": (
            _outputs(theirs)[-1:],
            _outputs(ours)[-1:],
        ),
        "agent.num_critics": (_members(theirs), _members(ours)),
    }.items():
        if first != second:
            found.append(f"{what} (saved with {first}, now {second})")
    return found


def _is_norm(key: str) -> bool:
    return "norms" in key or "scales" in key or "shifts" in key


def _is_of_tensors(entry: object) -> bool:
    return isinstance(entry, Mapping) and all(isinstance(each, Tensor) for each in entry.values())


def _form(key: str) -> str:
    """`mlp.layers.#.weight` of `mlp.layers.0.weight`."""
    return re.sub(r"\d+", "#", key)


def _torso(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(each.shape) for key, each in state.items() if "torso" in key}


def _dense_shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Of the dense layers: [outputs, inputs], or of an ensemble [members, inputs, outputs]."""
    return {
        key: tuple(each.shape)
        for key, each in state.items()
        if ("weights." in key or key.endswith(".weight")) and "torso" not in key and each.ndim > 1
    }


def _outputs(shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    return [each[0] if len(each) == 2 else each[-1] for each in shapes.values()]


def _inputs(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return next(iter(shapes.values()))[1]


def _members(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Of an ensemble; 1 of a network by itself."""
    first = next(iter(shapes.values()))
    return first[0] if len(first) == 3 else 1


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
        optional = part if isinstance(part, OptionalPart) else None
        with self.fitting(optional.setting if optional else name):
            if optional is None and isinstance(part, nn.Module) and _is_of_tensors(entry):
                self._refuse_other_sizes(name, entry, part.state_dict())
            part.load_state_dict(entry)

    def _refuse_other_sizes(
        self, name: str, theirs: Mapping[str, Tensor], mine: Mapping[str, Tensor]
    ) -> None:
        found = "; ".join(differences(theirs, mine))
        if found:
            raise CheckpointError(f"{self._unfit}: its network {name!r} differs: {found}")

    def load_weights(self, part: nn.Module, name: str) -> None:
        """Restores a part for a new training; an optional one that only one of the two agents
        learned stays as the settings say."""
        if not isinstance(part, OptionalPart):
            self.load(part, name)
            return
        with self.fitting(part.setting):
            known = "log" in self.content.get(name, ())
        if known and part.learned:
            self.load(part, name)
        elif known or part.learned:
            its = "has a learned one" if known else "has no learned one"
            log.info("%s starts at its configured value: %s %s", part.setting, self.title, its)

    @contextmanager
    def fitting(self, what: str) -> Iterator[None]:
        """Turns errors within the block into a CheckpointError that names the part."""
        try:
            yield
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{self._unfit}: {what}: {reason}") from error

    @property
    def _unfit(self) -> str:
        return f"{self.title} does not fit agent={self.agent}"
