"""Omits work of Hydra that has no effect here and takes a quarter of every composition.

The suite composes more than a thousand times. Commands in child processes run the whole Hydra.
"""

from __future__ import annotations

from typing import Any

from hydra._internal import defaults_list
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

_create_map = defaults_list._create_interpolation_map
_EMPTY = OmegaConf.create()


def take_shortcuts() -> None:
    """Replaces functions of Hydra in this process."""
    defaults_list._create_interpolation_map = _map_if_needed
    # Hydra copies its sources for every defaults list, and with them the store of all schemas.
    ConfigStore.__deepcopy__ = lambda self, _: self  # type: ignore[attr-defined]


def _map_if_needed(overrides: Any, entries: list[Any], self_added: bool) -> DictConfig:
    """Returns the choices for interpolations in a defaults list; empty if there is none in it."""
    if any(entry.is_interpolation() for entry in entries):
        return _create_map(overrides, entries, self_added)
    return _EMPTY
