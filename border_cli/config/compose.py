"""Composes overrides and config files into a checked job. The code is in the order of execution.

Hydra's global state is restored afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config.check import CONFIG_ERRORS, explain_errors, refuse_untyped, run_settings
from border_cli.config.files import TUNED, ConfigFile, Files
from border_cli.config.hydra_source import open_files, run_hydra_main
from border_cli.config.job import Job, Source, modules_of, yaml_text
from border_cli.config.overrides import (
    chooses,
    normalize_overrides,
    parse_overrides,
    refuse_invalid_overrides,
)
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
    """Returns the checked settings that `border-train OVERRIDES` would use, but does not read those
    of the run in `resume=RUN_DIR`; see `border_cli.resume`.

    Restores Hydra's global state, also inside another Hydra app and in threads.
    """
    folders = user_folders([config_dir] if config_dir else [])
    imports = [plugin.module for plugin in plugins_here()]
    return Composer(folders, config_name, imports=imports).job(list(overrides)).config


class Composer:
    """Composes jobs from a primary config; `folders` take precedence over our own config files."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        *,
        imports: Sequence[str] = (),
        run_dir: Path | None = None,
        trust: bool = False,
        saved: SavedSettings | None = None,
        adapt: Callable[[Sequence[str]], SavedSettings] | None = None,
    ) -> None:
        """`adapt` returns the saved settings for the overrides of one job: those without the groups
        whose options the job chooses."""
        self.folders = list(folders)
        self.config_name = config_name if saved is None else SETTINGS.stem
        self.run_dir = run_dir  # run directory of the run to resume, if any
        self.trust = trust  # whether `trust=true` was typed
        self._imports = list(imports)  # modules imported for every job
        self._saved = saved  # settings used instead of the primary config's file
        self._adapt = adapt
        register_builtin()

    def job(self, overrides: Sequence[str], number: int | None = None) -> Job:
        """Composes and checks one job; `number` is its index in a sweep."""
        with self.open_files() as files:
            return self.job_of(files, overrides, number)

    def open_files(self) -> AbstractContextManager[Files]:
        """Opens the config files for Hydra to read."""
        saved = self._saved.served if self._saved else None
        return open_files(Files(self.folders, self.config_name, saved))

    def options(self, group: str) -> list[str]:
        """Returns the names of all options of a group."""
        with self.open_files() as files:
            return files.options(group)

    def job_of(
        self,
        files: Files,
        overrides: Sequence[str],
        number: int | None = None,
        root: Path | None = None,
    ) -> Job:
        """Composes and checks one job from open files; `root` is the directory of its sweep."""
        typed = normalize_overrides(overrides)
        if self._adapt is not None:
            files.serve_saved(self._adapt(typed).served)
        imports = self.import_for(files, typed)
        with explain_errors(files, typed):
            refuse_invalid_overrides(files, parse_overrides(typed))
            return self.merge(files, typed, imports).job(number, root)

    def import_for(self, files: Files, overrides: Sequence[str]) -> list[str]:
        """Imports the modules named in `imports` of the chosen files and overrides, in order.

        Returns their names without duplicates. The modules register components; those in saved
        settings are checked first. Stores `files.parts`, or leaves it empty for `merge` to compute:
        after imports, which may change it, or if the files do not compose.
        """
        names, saved_names = list(self._imports), list[str]()
        with suppress(*CONFIG_ERRORS):
            files.find_parts(overrides, lenient=True)
        for part in files.parts:
            if not part.package and part.file:
                is_saved = self._saved is not None and part.path == self.config_name
                target = saved_names if is_saved else names
                target += names_in(OmegaConf.select(part.content, "imports"))
        for override in parse_overrides(overrides):
            if override.key_or_group == "imports" and not override.is_sweep_override():
                names += names_in(override.value())
        if self._saved is not None:
            self._saved.refuse_imports(names)
        imports = list(dict.fromkeys([*saved_names, *names]))
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
        """Merges the chosen files and the overrides; call `import_for` first."""
        if not files.parts:
            files.find_parts(overrides)
        choose_trainer(files, overrides)
        parsed_overrides = parse_overrides(overrides)
        add_tuned(
            files, {override.key_or_group for override in parsed_overrides if chooses(override)}
        )
        drop_weaker(files, parsed_overrides)
        config = files.loader.load_configuration(
            files.config_name,
            list(overrides),
            mode,
            validate_sweep_overrides=mode == RunMode.RUN,
        )
        return Composition(config, files.parts, imports, self._saved, self.trust)


@dataclass(frozen=True, slots=True)
class Composition:
    """The merged config, including Hydra's own settings, with interpolations not yet resolved."""

    config: DictConfig
    parts: Sequence[ConfigFile]
    imports: Sequence[str]  # modules named by files and overrides, and plug-ins of ./pyproject.toml
    saved: SavedSettings | None  # settings of another run, if the composition started from them
    trust: bool

    def job(self, number: int | None, root: Path | None = None) -> Job:
        """Resolves and checks the job. `number`: index in a sweep. `root`: directory of the sweep,
        `hydra.sweep.dir` by default."""
        hydra, typed = self.config.hydra, as_typed(self.config.hydra.overrides.task)
        if number is None and hydra.mode == RunMode.MULTIRUN:
            raise ConfigError("hydra.mode must be RUN: -m runs several jobs")
        refuse_untyped(self.config, self.parts)
        if number is not None:
            with open_dict(hydra):
                hydra.job.num, hydra.job.id = number, str(number)
        record = _make_record(self.config)
        HydraConfig.instance().set_config(self.config)  # resolves `${hydra:…}`
        config = run_settings(self.config)
        if self.saved is not None:
            self.saved.refuse_values(config, self._new_settings(typed))
        config.check_actors()
        folder = Path(hydra.run.dir)
        if number is not None:
            folder = Path(root or hydra.sweep.dir) / hydra.sweep.subdir
        config = replace(config, imports=list(dict.fromkeys([*self.imports, *config.imports])))
        return Job(
            folder=full_path(folder),
            config=config,
            overrides=tuple(typed),
            number=number,
            sources=_list_sources(self.parts),
            record=record,
            import_paths=tuple(homes(modules_of(config))),
            trust=self.trust,
        )

    def _new_settings(self, overrides: Sequence[str]) -> set[str]:
        """Returns the settings set by overrides or by files other than the saved one."""
        sources: list[tuple[str, Any]] = [
            (part.package, OmegaConf.to_container(part.content, resolve=False))
            for part in self.parts
            if part.path != SETTINGS.stem
        ]
        sources += [
            (override.key_or_group, override.value()) for override in parse_overrides(overrides)
        ]
        return {name for prefix, content in sources for name in flat(content, prefix)}


def show_hydra_output(argv: list[str], overrides: Sequence[str], composer: Composer) -> None:
    """Prints Hydra's own output for flags such as `--cfg hydra` and `--info`, after composing and
    checking the settings."""
    with composer.open_files() as files:
        composer.job_of(files, overrides)
        run_hydra_main(argv)


def as_typed(overrides: Any) -> list[str]:
    """Returns Hydra's list of overrides, with any `${…}` unresolved."""
    return [str(text) for text in OmegaConf.to_container(overrides, resolve=False) or []]


def _make_record(config: DictConfig) -> dict[str, str]:
    """Returns the settings and overrides as the contents of the files that Hydra would save."""
    settings: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    typed = settings.pop("hydra")["overrides"]["task"]
    return {"config.yaml": yaml_text(settings), "overrides.yaml": yaml_text(typed)}


def _list_sources(parts: Sequence[ConfigFile]) -> tuple[Source, ...]:
    """Lists the chosen files in merge order, the primary config first.

    If one file builds on another, only the last is listed. All tuned files are listed.
    """
    sources: dict[tuple[str, str], Source] = {}
    for part in parts:
        group, _, name = part.path.rpartition("/")
        if part.file and not group.startswith("hydra/"):
            key = (group, name if group == TUNED else part.package)
            sources.pop(key, None)
            sources[key] = Source(group or "config", name, str(part.file))
    return tuple(sorted(sources.values(), key=lambda source: source.group != "config"))
