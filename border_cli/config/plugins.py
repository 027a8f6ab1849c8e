"""Hydra's plug-ins, those of others among them: one that fails to import is named in one line and
left out, where Hydra would refuse every command or print the same as several lines."""

from __future__ import annotations

import importlib
import logging
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from functools import cache

from hydra.core.plugins import Plugins

log = logging.getLogger(__name__)

PLACE = "hydra_plugins"  # the package that Hydra looks in
FAILED = "Error importing"  # in its own warning
# Of one that we register ourselves, where this package is installed as editable.
EDITABLE = "in an editable hydra_plugins namespace install"


@cache
def hydra_plugins() -> Plugins:
    """All that can be imported."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            plugins = Plugins.instance()
        except Exception as error:
            if not _leave_out_broken():
                raise
            log.debug("Hydra's plug-ins: %s", error)
            plugins = Plugins.instance()
        else:
            if any(FAILED in str(each.message) for each in said):
                _leave_out_broken()
    for each in said:
        if FAILED not in str(each.message) and EDITABLE not in str(each.message):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return plugins


def _leave_out_broken() -> bool:
    """Has Python import no broken module again; names each plug-in. False where there is none."""
    broken: dict[str, Exception] = {}
    for name, error in _failing():
        sys.modules[name] = None  # type: ignore[assignment]
        broken.setdefault(name.split(".")[1], error)
    for plugin, error in broken.items():
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        log.warning("Hydra's plug-in %s cannot be imported and is left out: %s", plugin, reason)
    return bool(broken)


def _failing() -> Iterator[tuple[str, Exception]]:
    path = importlib.import_module(PLACE).__path__
    for module in pkgutil.walk_packages(path, f"{PLACE}.", onerror=lambda _: None):
        if not module.name.rpartition(".")[2].startswith("_"):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                yield module.name, error
