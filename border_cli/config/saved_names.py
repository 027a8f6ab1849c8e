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
from border_cli.registry import ENVS, components
from border_cli.run.status import import_paths
from border_cli.settings.base import flat
from border_cli.settings.run import AUTO, EnvConfig, RunConfig, modules_of_env
from border_cli.system.files import SETTINGS
from border_cli.system.foreign import refuse_saved_module
from border_cli.words import setting, shortest

_LOOPBACK = re.compile(r"(ray://)?(localhost|127\.[\d.]+|\[::1\]):\d+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Saved settings as the primary configuration of a command, perhaps with other choices."""

    folder: Path  # `.hydra` of the run, or the folder of an exported policy
    settings: dict[str, Any]
    trust: bool = False  # whether `trust=true` was typed
    dials: bool = True  # whether the command connects to clusters

    def choosing(self, group: str, option: str = "???") -> Saved:
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
        whole = self.folder.resolve()
        return whole.parent if whole.name == SETTINGS.parent.name else whole

    def _of(self, name: str) -> str:
        """A setting of this file, for messages."""
        return f"{shortest(self.folder / SETTINGS.name)}: {name}"

    def refuse_imports(self, typed: Collection[str]) -> None:
        """Raises ConfigError for a module of `imports` that nobody typed, and that is neither the
        user's own nor of a package with environments."""
        for module in names_in(self.settings.get("imports")):
            if module not in typed:
                self._refuse_module(module, "imports")

    def _refuse_module(self, module: str, name: str) -> None:
        if self.trust:
            return
        recorded = ", ".join(import_paths(self.run_dir)) or "it does not say where"
        elsewhere = (
            "Modules of a run are imported from the current directory "
            f"({Path.cwd()}), $PYTHONPATH and the installed packages alone, never from the run "
            "directory, and it is not there; nothing was imported. The run had found its modules "
            f"in: {recorded}. Where you have its code and trust it: cd to the folder that holds "
            "it, or trust=true, typed (from Python: trust=True), which also looks where the run "
            "says"
        )
        refuse_saved_module(module, self._of(name), self.run_dir, elsewhere)

    def refuse_values(self, config: RunConfig, typed: Set[str] = frozenset()) -> None:
        """Raises ConfigError for what the settings call, open or dial although nobody typed it.

        `typed`: the names of settings that were."""
        envs = (("env", vars(config.env)), ("evaluator.env", config.evaluator.env))
        for place, env in envs if config.env.calls_by_name and not self.trust else ():
            for key in ("id", "wrappers", "kwargs"):
                value = env.get(key)
                values = value if key == "kwargs" and value else {"": value}
                for argument, value in values.items():
                    name = f"{place}.{key}.{argument}".rstrip(".")
                    if not flat(value, name).keys() <= typed:
                        self._refuse_value(config.env, key, name, value)
        for place, chosen in components(config).items() if self.dials else ():
            address, name = getattr(chosen, "address", None), f"{place}.address"
            near = (None, AUTO, "local", os.environ.get("RAY_ADDRESS"))
            if not (address in near or _LOOPBACK.fullmatch(address) or name in typed):
                raise ConfigError(
                    f"{self._of(name)}={address} is not dialled: a saved address must be null, "
                    f"auto, this machine's or that of $RAY_ADDRESS. Type "
                    f"{setting(name, address)}, or another one"
                )

    def _refuse_value(self, env: EnvConfig, key: str, name: str, value: Any) -> None:
        """Refuses calls, paths that lead out of the run, and the wrapper that writes films."""
        for _, module in modules_of_env({key: value}):
            self._refuse_module(module, name)
            if key == "id":
                ENVS.load(env).refuse_saved_id(value, self._of(name))
        for text in _texts(value):
            films = key == "wrappers" and re.split(r"[.:]", text)[-1] == "RecordVideo"
            if films or self._is_outside(text):
                raise ConfigError(
                    f"{self._of(name)} has {text!r}, which writes or leads out of the run. "
                    "Where you trust it, type that setting (resume=, --from), or trust=true"
                )

    def _is_outside(self, text: str) -> bool:
        """Whether a text is a path that leads out of the run."""
        path = Path(text.removeprefix("file://"))
        if text.startswith("~") or ".." in path.parts:
            return True
        return path.is_absolute() and not path.resolve().is_relative_to(self.run_dir)


def _texts(value: Any) -> Iterator[str]:
    """All texts and paths in plain values, keys among them."""
    if isinstance(value, str | bytes | Path):
        yield os.fsdecode(value)
    elif isinstance(value, dict | list):
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(entry)
