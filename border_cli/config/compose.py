"""From overrides and files to a checked job, from top to bottom in the order in which it happens.

Hydra's global state is as before afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config.check import REFUSED, explained, refuse_untyped, run_settings
from border_cli.config.files import TUNED, ConfigFile, Files
from border_cli.config.hydra_source import answer, opened
from border_cli.config.job import Job, Source, modules_of, yaml_text
from border_cli.config.overrides import chooses, normalized, parsed, refuse_unmeant
from border_cli.config.search_path import (
    homes,
    import_modules,
    names_in,
    plugins_here,
    user_folders,
)
from border_cli.config.tuned import add_tuned, choose_trainer, drop_weaker
from border_cli.errors import ConfigError
from border_cli.registry import register_builtin
from border_cli.settings.base import flat
from border_cli.settings.run import RunConfig
from border_cli.system.files import SETTINGS, full_path

if TYPE_CHECKING:
    from border_cli.config.saved import SavedSettings


def compose(
    *overrides: str, config_dir: str | None = None, config_name: str = "config"
) -> RunConfig:
    """The settings that `border-train OVERRIDES` would run with, checked.

    Hydra's global state is as before, also inside another Hydra app and in threads.
    """
    folders = user_folders([config_dir] if config_dir else [])
    imports = [each.module for each in plugins_here()]
    return Composer(folders, config_name, imports=imports).job(list(overrides)).config


class Composer:
    """Composes jobs from one primary configuration and the folders in front of ours."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        *,
        imports: Sequence[str] = (),
        run_dir: Path | None = None,
        trust: bool = False,
        saved: SavedSettings | None = None,
    ) -> None:
        self.folders = list(folders)
        self.config_name = config_name if saved is None else SETTINGS.stem
        self.run_dir = run_dir  # whose saved settings these are: the run that is resumed
        self.trust = trust  # whether `trust=true` was typed
        self._imports = list(imports)  # of every job
        self._saved = saved  # in the place of the primary configuration's file
        register_builtin()

    def job(self, overrides: Sequence[str], number: int | None = None) -> Job:
        """Composes and checks one job; a number says which one of a sweep."""
        with self.opened() as files:
            return self.job_of(files, overrides, number)

    def opened(self) -> AbstractContextManager[Files]:
        """The files that it composes from, while Hydra reads them."""
        saved = self._saved.served if self._saved else None
        return opened(Files(self.folders, self.config_name, saved))

    def options(self, group: str) -> list[str]:
        """All that a group offers."""
        with self.opened() as files:
            return files.options(group)

    def job_of(
        self,
        files: Files,
        overrides: Sequence[str],
        number: int | None = None,
        root: Path | None = None,
    ) -> Job:
        """One job from files that are open; `root` is the directory of its sweep."""
        typed = normalized(overrides)
        imports = self.import_for(files, typed)
        with explained(files, typed):
            refuse_unmeant(files, parsed(typed))
            return self.merge(files, typed, imports).job(number, root)

    def import_for(self, files: Files, overrides: Sequence[str]) -> list[str]:
        """Imports the modules that the chosen files and the command line name, which register
        components; each once, in order. Returns their names. Those of saved settings are checked.

        Leaves the files that take part in `files.parts`; none if they are to be found again, since
        modules were imported or the files do not compose, which the composition refuses.
        """
        names, of_saved = list(self._imports), list[str]()
        with suppress(*REFUSED):
            files.find_parts(overrides, lenient=True)
        for part in files.parts:
            if not part.package and part.file:
                is_saved = self._saved is not None and part.path == self.config_name
                named = of_saved if is_saved else names
                named += names_in(OmegaConf.select(part.content, "imports"))
        for override in parsed(overrides):
            if override.key_or_group == "imports" and not override.is_sweep_override():
                names += names_in(override.value())
        if self._saved is not None:
            self._saved.refuse_imports(names)
        imports = list(dict.fromkeys([*of_saved, *names]))
        if imports:
            import_modules(imports)
            files.parts = []
        return imports

    def merge(
        self,
        files: Files,
        overrides: Sequence[str],
        imports: Sequence[str],
        mode: RunMode = RunMode.RUN,
    ) -> Composition:
        """Merges files whose modules are imported, and what is typed."""
        if not files.parts:
            files.find_parts(overrides)
        choose_trainer(files, overrides)
        read = parsed(overrides)
        add_tuned(files, {each.key_or_group for each in read if chooses(each)})
        drop_weaker(files, read)
        config = files.loader.load_configuration(
            files.config_name,
            list(overrides),
            mode,
            validate_sweep_overrides=mode == RunMode.RUN,
        )
        return Composition(config, files.parts, imports, self._saved, self.trust)


@dataclass(frozen=True, slots=True)
class Composition:
    """Merged settings, those of Hydra among them, before interpolations are resolved."""

    config: DictConfig
    parts: Sequence[ConfigFile]
    imports: Sequence[str]  # modules that files and overrides name
    saved: SavedSettings | None  # the settings of another run that it began with
    trust: bool

    def job(self, number: int | None, root: Path | None = None) -> Job:
        """The job, checked. `number`: within a sweep, whose directory is `root`, or as its own
        settings say."""
        hydra, typed = self.config.hydra, as_typed(self.config.hydra.overrides.task)
        if number is None and hydra.mode == RunMode.MULTIRUN:
            raise ConfigError("hydra.mode must be RUN: -m runs several jobs")
        refuse_untyped(self.config, self.parts)
        if number is not None:
            with open_dict(hydra):
                hydra.job.num, hydra.job.id = number, str(number)
        record = _record(self.config)
        HydraConfig.instance().set_config(self.config)  # which `${hydra:…}` reads
        config = run_settings(self.config)
        if self.saved is not None:
            self.saved.refuse_values(config, self._set_anew(typed))
        folder = Path(hydra.run.dir)
        if number is not None:
            folder = Path(root or hydra.sweep.dir) / hydra.sweep.subdir
        config = replace(config, imports=list(dict.fromkeys([*self.imports, *config.imports])))
        return Job(
            folder=full_path(folder),
            config=config,
            overrides=tuple(typed),
            number=number,
            sources=_sources(self.parts),
            record=record,
            import_paths=tuple(homes(modules_of(config))),
            trust=self.trust,
        )

    def _set_anew(self, overrides: Sequence[str]) -> set[str]:
        """The settings that are typed, or are in a file besides the saved ones."""
        sources: list[tuple[str, Any]] = [
            (part.package, OmegaConf.to_container(part.content, resolve=False))
            for part in self.parts
            if part.path != SETTINGS.stem
        ]
        sources += [(each.key_or_group, each.value()) for each in parsed(overrides)]
        return {name for place, content in sources for name in flat(content, place)}


def show_answer(argv: list[str], overrides: Sequence[str], composer: Composer) -> None:
    """Prints what Hydra's own entry point answers to `--cfg hydra`, `--info`, …, once the settings
    are composed and checked."""
    with composer.opened() as files:
        composer.job_of(files, overrides)
        answer(argv)


def as_typed(overrides: Any) -> list[str]:
    """Hydra's record of the command line; a `${…}` in it stays as it was typed."""
    return [str(each) for each in OmegaConf.to_container(overrides, resolve=False) or []]


def _record(config: DictConfig) -> dict[str, str]:
    """The settings and the command line, in the files in which Hydra saves them."""
    settings: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    typed = settings.pop("hydra")["overrides"]["task"]
    return {"config.yaml": yaml_text(settings), "overrides.yaml": yaml_text(typed)}


def _sources(parts: Sequence[ConfigFile]) -> tuple[Source, ...]:
    """One entry per chosen file, in the order of merging; the primary configuration first.

    Of files that build on each other the last one was chosen. Every file of `tuned` counts.
    """
    found: dict[tuple[str, str], Source] = {}
    for part in parts:
        group, _, name = part.path.rpartition("/")
        if part.file and not group.startswith("hydra/"):
            place = (group, name if group == TUNED else part.package)
            found.pop(place, None)
            found[place] = Source(group or "config", name, str(part.file))
    return tuple(sorted(found.values(), key=lambda source: source.group != "config"))
