"""Saved settings that a command begins with, and what they may import, call, open and dial.

They may be somebody else's. Each rule is one of docs/runs.md, "Other people's runs".
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from border_cli.config.search_path import names_in
from border_cli.errors import ConfigError
from border_cli.registry import ENVS
from border_cli.run.status import import_paths
from border_cli.settings.base import flat
from border_cli.settings.run import EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS
from border_cli.system.foreign import may_import, refuse_standard
from border_cli.words import setting, shortest

ADDRESSES = {"actor_manager.address", "evaluator.address"}  # of clusters
_OF_ENV = re.compile(r"(?:evaluator\.)?env\.(id|wrappers|kwargs)\b")
_FILMS = re.compile(r"(.*[.:])?RecordVideo")  # a wrapper that writes
_NEAR = re.compile(  # addresses of clusters
    r"None|auto|local|(ray://)?(localhost|127\.[\d.]+|\[::1\]):\d+", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSettings:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run, or the folder of an exported policy
    settings: dict[str, Any]
    trust: bool = False  # whether `trust=true` was typed
    typed: Set[str] = frozenset()  # settings that were typed elsewhere, or that nothing will use

    def choosing(self, group: str, option: str = "???") -> SavedSettings:
        """These settings with another option of a group, without the saved values.

        `???` demands a choice, which the command line makes.
        """
        prefix = f"/schema/{group}/"
        entries = [each for each in self.settings["defaults"] if not str(each).startswith(prefix)]
        settings = {**self.settings, "defaults": [*entries[:-1], {group: option}, entries[-1]]}
        settings.pop(group, None)
        return replace(self, settings=settings)

    @property
    def run_dir(self) -> Path:
        """The run directory, or the folder of an exported policy, without links."""
        is_run = self.folder.name == SETTINGS.parent.name
        return (self.folder.parent if is_run else self.folder).resolve()

    def _of(self, name: str) -> str:
        """A setting of this file, for messages."""
        return f"{shortest(self.folder / SETTINGS.name)}: {name}"

    def refuse_imports(self, typed: Collection[str]) -> None:
        """Raises ConfigError for a module of `imports` that was not typed and is not allowed."""
        for module in names_in(self.settings.get("imports")):
            if module not in typed:
                self._refuse_module(module, "imports")

    def _refuse_module(self, module: str, name: str) -> None:
        refuse_standard(module, self._of(name))
        if self.trust or may_import(module, self.run_dir):
            return
        recorded = ", ".join(import_paths(self.run_dir)) or "it does not say where"
        raise ConfigError(
            f"{self._of(name)} names the module {module!r}. Modules of a run must be your own, in "
            "the current directory, on $PYTHONPATH or in an editable install, or belong to an "
            "installed package that requires Gymnasium or border_cli; none comes from the run "
            f"directory, and nothing was imported. The run had found its modules in: {recorded}. "
            "Where you have its code and trust it: cd to the folder that holds it, or type that "
            "setting (resume=, --from), or trust=true (from Python: trust=True), which also looks "
            "where the run says"
        )

    def refuse_values(self, config: RunConfig, typed: Set[str] = frozenset()) -> None:
        """Raises ConfigError for values that were not typed and call, open or dial something.

        `typed`: the names of settings that were typed.
        """
        for name, value in flat(config).items():
            of_env = _OF_ENV.match(name)
            if name in typed | self.typed:
                continue
            if of_env:
                self._refuse_of_env(config.env, of_env[1], name, value)
            elif name.endswith(".address"):
                if _NEAR.fullmatch(str(value)) or value == os.environ.get("RAY_ADDRESS"):
                    continue
                raise ConfigError(
                    f"{self._of(name)}={value} is not dialled: a saved address must be null, "
                    f"auto, this machine's or that of $RAY_ADDRESS. Type {setting(name, value)}, "
                    "or another one"
                )

    def _refuse_of_env(self, env: EnvConfig, key: str, name: str, value: Any) -> None:
        """Refuses calls, paths that lead out of the run, and the wrapper that writes films."""
        if self.trust or not env.calls_by_name:
            return
        for _, module in modules_of_env({key: value}):
            self._refuse_module(module, name)
            if key == "id":
                ENVS.load(env).refuse_saved_id(value, self._of(name))
        for text in _texts(value):
            if _FILMS.fullmatch(text) or self._is_outside(text):
                raise ConfigError(
                    f"{self._of(name)} has {text!r}, which writes or leads out of the run. "
                    "Where you trust it, type that setting (resume=, --from), or trust=true"
                )

    def _is_outside(self, text: str) -> bool:
        """Whether a text is a path that leads out of the run."""
        path = Path(text.removeprefix("file:"))
        if text.startswith("~") or ".." in path.parts:
            return True
        return path.is_absolute() and not path.resolve().is_relative_to(self.run_dir)


def _texts(value: Any) -> Iterator[str]:
    """All texts in plain values, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(entry)
