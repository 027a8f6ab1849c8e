"""A user's own folder and modules, and a registry that is as before afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from border_cli.registry import GROUPS, NETWORKS, register_builtin

Write = Callable[[str, str], Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the user, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BORDER_CONFIG_PATH", raising=False)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    """Writes a file of the user."""

    def _write(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def own_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of the folder can be imported; what they register is gone afterwards."""
    register_builtin()
    before = {group: dict(registry._entries) for group, registry in GROUPS.items()}
    networks = dict(NETWORKS._targets)
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    yield
    for group, registry in GROUPS.items():
        registry._entries = before[group]
    NETWORKS._targets = networks
    for name in set(sys.modules) - modules:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
