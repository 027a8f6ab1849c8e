"""From overrides and files to a checked RunConfig, by Hydra's composition without Hydra's global
state: where settings begin, search path, defaults list, merging, and the files that took part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.defaults_list import DefaultsList
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from hydra.version import VersionBase, _get_version
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from border_cli.config import check
from border_cli.config.explain import explained
from border_cli.config.imports import (
    add_current_directory,
    import_modules,
    modules_of_a_run,
    names_in,
)
from border_cli.config.interpolation import OWN_NAME, register_resolvers, resolve_settings
from border_cli.config.overrides import (
    is_sweep,
    normalized,
    parsed,
    refuse_swept,
    refuse_unmeant,
    run_to_resume,
    without_trust,
)
from border_cli.config.search_path import OURS, plugins_here, user_folders
from border_cli.config.sources import (
    SAVED_SCHEME,
    TUNED,
    BlankSchemas,
    Repository,
    Schemas,
    file_of,
    shown,
)
from border_cli.config.tuned import (
    Part,
    drop_weaker_limits,
    fitted,
    is_tuned,
    part_of,
    with_general_files,
)
from border_cli.core.config import GroupConfig, RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.files import SETTINGS
from border_cli.hydra_plugin import register as register_launcher
from border_cli.registry import GROUPS, register_builtin

VERSION_BASE = "1.3"
HYDRA_SETTINGS = "hydra_settings"  # ours of Hydra itself; every primary configuration has them
BASIC_SWEEPER = f"{BasicSweeper.__module__}.{BasicSweeper.__qualname__}"

# What files that do not compose may raise when they are read for their `imports`.
_UNREADABLE = (ConfigError, HydraException, OmegaConfBaseException, YAMLError, ValueError)

# Hydra keeps its version base and its stores per process; compositions take turns.
_turn = RLock()

setup_globals()
register_resolvers()


def compose(
    *overrides: str, config_dir: str | None = None, config_name: str = "config"
) -> RunConfig:
    """The settings that `border-train OVERRIDES` would run with, checked.

    Hydra's global state is as before, also inside another Hydra app and in threads.
    """
    folders = user_folders([config_dir] if config_dir else [])
    return Composer(folders, config_name, imports=_of_plugins_here()).job(list(overrides)).config


@contextmanager
def composing(
    typed: list[str],
    *,
    config_dirs: Sequence[str] = (),
    config_name: str = "config",
    origin: str | None = None,
    multirun: bool = False,
) -> Iterator[tuple[Composer, list[str]]]:
    """Finds plug-ins and folders; the overrides come back without what is no setting.

    Modules of the current folder can be imported within the block. `resume=RUN_DIR` composes from
    the settings of that run, `origin` a new run from those of another; no module comes out of
    its folder unless trust=true is typed.
    """
    overrides, trust = without_trust(typed)
    run_dir = run_to_resume(overrides)
    if origin is not None:
        from border_cli.config.origin import composing_from

        with composing_from(
            origin, overrides, config_dirs=config_dirs, config_name=config_name, trust=trust
        ) as composer:
            yield composer, overrides
        return
    if run_dir is None:
        with _folders_to_compose_from(config_dirs, config_name, trust=trust) as folders:
            imports = _of_plugins_here()
            yield Composer(folders, config_name, imports=imports, trust=trust), overrides
        return
    from border_cli.config.resuming import refuse_beside_resume, without_its_own
    from border_cli.config.saved import refuse_strange_modules, saved_composer
    from border_cli.run.status import import_paths

    refuse_beside_resume(run_dir, overrides, multirun=multirun, config_name=config_name)
    recorded = import_paths(run_dir)
    with modules_of_a_run(recorded, trust=trust):
        if not trust:
            refuse_strange_modules(run_dir / SETTINGS, recorded)
        folders = user_folders(config_dirs)
        overrides = without_its_own(run_dir, overrides)
        yield saved_composer(run_dir, overrides, folders, trust=trust), overrides


@contextmanager
def _folders_to_compose_from(
    config_dirs: Sequence[str], config_name: str, *, trust: bool
) -> Iterator[list[str]]:
    """The user's folders. `-cd RUN_DIR/.hydra -cn resolved` reads what a run has saved, hence as
    data, and imports nothing from there."""
    folders = user_folders(config_dirs)
    with ExitStack() as stack:
        for place, each in enumerate(folders):
            folder = Path(each.removeprefix("file://"))
            if folder.name == SETTINGS.parent.name and (folder / SETTINGS.name).is_file():
                from border_cli.config.saved import saved_source

                stack.enter_context(modules_of_a_run((), trust=False))
                if config_name == SETTINGS.stem:
                    folders[place] = saved_source(folder)
        add_current_directory(trust=trust)
        yield folders


def _of_plugins_here() -> list[str]:
    """The modules of the current directory's plug-ins: a run remembers them, because elsewhere
    nothing but its `imports` leads to them."""
    return [each.module for each in plugins_here()]


class Source(NamedTuple):
    """Which file a choice came from."""

    group: str
    choice: str
    file: str


@dataclass(frozen=True, slots=True)
class Job:
    """One composed and checked job."""

    overrides: tuple[str, ...]  # without those of Hydra itself
    number: int | None  # within a sweep
    config: RunConfig
    sources: list[Source]
    folder: str  # where it will be written
    multirun: bool  # the configuration itself asks for a sweep
    as_composed: str  # YAML before interpolations are resolved; empty for a job of a sweep
    sweep_dir: str = ""  # that of the sweep; empty for a job alone
    own_name: bool = True  # the sub-folder of the sweep is named by us


LAUNCHER = "hydra/launcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """How the jobs of a sweep come about and are run, as its configuration says."""

    jobs: list[list[str]] | None  # the overrides of each; None: its sweeper invents them
    fixed: list[str]  # overrides of every job
    launcher: str  # the choice, such as joblib
    launcher_settings: dict[str, Any]
    root: str  # the directory of the sweep
    failed_value: float | None  # what the sweeper is told of a failed job; None: an exception


class Composer:
    """Composes jobs from one primary configuration and the folders in front of ours."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        config_name: str = "config",
        *,
        imports: Sequence[str] = (),
        run_dir: Path | None = None,
        origin: Path | None = None,
        trust: bool = False,
    ) -> None:
        self.folders = list(folders)
        self._imports = list(imports)  # of every job
        self.config_name = config_name
        self.run_dir = run_dir  # whose saved settings these are: the run that is resumed
        self.origin = origin  # whose saved settings a new run begins with
        self.trust = trust  # whether `trust=true` was typed
        self._last = Composed()
        register_builtin()

    def __getstate__(self) -> dict[str, Any]:
        """For a worker of a sweep, which composes its jobs itself."""
        return {**vars(self), "_last": Composed()}

    def job(self, overrides: list[str], job_number: int | None = None) -> Job:
        """Composes and checks one job; a number says which one of a sweep."""
        with hydra_turn():
            overrides = normalized(overrides)
            imports = self.imported(overrides)
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                refuse_unmeant(loader, self.config_name, overrides)
                config = loader.load_configuration(self.config_name, overrides, RunMode.RUN)
                if job_number is None:
                    self._last = Composed((self.config_name, *overrides), deepcopy(config))
                else:
                    config.hydra.job.num, config.hydra.job.id = job_number, str(job_number)
                check.refuse_untyped(config, loader.parts)
                job = _finish(config, loader.parts, imports, job_number)
            if self.trust and job.config.resume is None and self.origin is None:
                raise ConfigError(
                    "trust=true applies to the modules of a resumed run or of --from RUN_DIR, but "
                    "resume is null"
                )
            return job

    def loader(self) -> Loader:
        """For Hydra's entry point: it need not compose again what `job` composed last."""
        return Loader(self.folders, composed=self._last)

    def imported(self, overrides: list[str]) -> list[str]:
        """Imports the modules that these overrides lead to, which register components."""
        with hydra_turn():
            names = self._named_imports(overrides)
            if names:
                import_modules(names)
            return names

    def _named_imports(self, overrides: list[str]) -> list[str]:
        """All modules that the chosen files and the command line name, each once, in order.

        The files are read without being merged. A composition that fails is left to the real one.
        """
        names = list(self._imports)
        if self.folders or any("searchpath" in each for each in overrides):  # our own name none
            loader = Loader(self.folders, blank=True)
            with suppress(*_UNREADABLE):
                names += loader.imports(self.config_name, overrides)
        for override in parsed([each for each in overrides if "imports" in each]):
            if override.key_or_group == "imports" and not override.is_sweep_override():
                names += names_in(override.value())
        return list(dict.fromkeys(names))

    def options(self, group: str) -> list[str]:
        """What a group offers."""
        with hydra_turn():
            return Loader(self.folders).options(group)

    def primary_configs(self) -> list[str]:
        """What a command may begin with: `config` and files of the user."""
        with hydra_turn():
            return Loader(self.folders).primary_configs()

    def sweep(self, overrides: list[str]) -> list[list[str]] | None:
        """The overrides of each job of a sweep, or None where a sweeper invents them as it goes."""
        return self.sweep_terms(overrides).jobs

    def sweep_terms(self, overrides: list[str], default_launcher: str | None = None) -> SweepTerms:
        """The jobs of a sweep, its launcher and its directory.

        `default_launcher` is taken where no file and no override chooses one.
        """
        with hydra_turn():
            overrides = normalized(overrides)
            refuse_swept(overrides)
            self.imported([each for each in overrides if not is_sweep(each)])
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                parser = OverridesParser.create(config_loader=loader)
                chosen = loader.compute_defaults_list(
                    self.config_name, overrides, RunMode.MULTIRUN
                ).overrides
                launcher = str(chosen.known_choices.get(LAUNCHER))
                if default_launcher and LAUNCHER not in chosen.override_choices:
                    launcher = default_launcher
                    overrides = [f"{LAUNCHER}={launcher}", *overrides]
                master = self._master(loader, overrides)
                sweeper, jobs = master.hydra.sweeper, None
                task = as_typed(master.hydra.overrides.task)
                if sweeper.get("_target_") == BASIC_SWEEPER:
                    params = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
                    swept = parser.parse_overrides([*params, *task])
                    hydra = as_typed(master.hydra.overrides.hydra)
                    split = BasicSweeper.split_arguments(swept, None)[0]
                    if not split:
                        raise ConfigError(f"the sweep has no job: {' '.join([*params, *task])}")
                    jobs = [[*hydra, *job] for job in split]
                settings = OmegaConf.to_container(master.hydra.launcher, resolve=True)
                assert isinstance(settings, dict)
                return SweepTerms(
                    jobs=jobs,
                    fixed=[each for each in task if not is_sweep(each)],
                    launcher=launcher,
                    launcher_settings={str(key): value for key, value in settings.items()},
                    root=str(master.hydra.sweep.dir),
                    failed_value=_failed_value(sweeper),
                )

    def asks_for_sweep(self, overrides: list[str]) -> bool:
        """Whether the configuration itself says `hydra.mode: MULTIRUN`."""
        with hydra_turn():
            self.imported([each for each in overrides if not is_sweep(each)])
            loader = Loader(self.folders)
            with explained(loader, self.config_name, overrides):
                master = self._master(loader, overrides)
            return bool(master.hydra.mode == RunMode.MULTIRUN)

    def _master(self, loader: Loader, overrides: list[str]) -> DictConfig:
        """The composition of the sweep itself: what is swept is left out, as Hydra does it."""
        return loader.load_configuration(
            self.config_name, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False
        )


def _failed_value(sweeper: DictConfig) -> float | None:
    """Hydra's own sweeper ends at an exception; so do others, unless they allow for failures, but
    they learn from the worst value."""
    direction = str(sweeper.get("direction")).rpartition(".")[2]
    worst = {"maximize": -math.inf, "minimize": math.inf}
    if sweeper.get("_target_") == BASIC_SWEEPER:
        return math.nan
    return None if "max_failure_rate" in sweeper else worst.get(direction)


def _finish(config: DictConfig, parts: list[Part], imports: list[str], number: int | None) -> Job:
    hydra = config.hydra
    as_composed = OmegaConf.to_yaml(_without_hydra(config)) if number is None else ""
    resolve_settings(config)
    folder = _folder(config)
    with open_dict(config):
        del config["hydra"]
    made = OmegaConf.to_object(config)
    assert isinstance(made, RunConfig)
    check.refuse_mistyped_evaluation_env(made)
    return Job(
        overrides=tuple(as_typed(hydra.overrides.task)),
        number=number,
        config=replace(made, imports=list(dict.fromkeys([*imports, *made.imports]))),
        sources=_sources(parts, hydra.runtime.choices),
        folder=folder,
        multirun=hydra.mode == RunMode.MULTIRUN,
        as_composed=as_composed,
        sweep_dir="" if number is None else str(hydra.sweep.dir),
        own_name=str(hydra.sweep._get_node("subdir")._value()).startswith(OWN_NAME),
    )


def as_typed(overrides: Any) -> list[str]:
    """Hydra's record of the command line; a `${…}` in it stays as it was typed."""
    return [str(each) for each in OmegaConf.to_container(overrides, resolve=False) or []]


def _without_hydra(config: DictConfig) -> DictConfig:
    """A copy of the settings alone, to be shown: its types are lost."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _folder(config: DictConfig) -> str:
    """Where the job will be written; of a sweep's job, its sub-folder."""
    if OmegaConf.is_missing(config.hydra.job, "num"):
        return str(config.hydra.run.dir)
    return str(Path(config.hydra.sweep.dir, config.hydra.sweep.subdir))


def _sources(parts: Sequence[Part], choices: Mapping[str, object]) -> list[Source]:
    """One entry per chosen file, in the order of merging; the primary configuration first.

    `choices` are Hydra's, which has none of a group that chooses several (`recorder`), and none of
    a file that another one inherits from. Every file of `tuned` counts.
    """
    found = []
    for part in parts:
        group, _, name = part.path.rpartition("/")
        ours = part.file and not group.startswith("hydra/")
        chosen = choices.get(group, name) == name or group == TUNED
        if ours and chosen and (group or _primary(part, parts)):
            found.append(Source(group or "config", name, str(part.file)))
    return sorted(dict.fromkeys(found), key=lambda source: source.group != "config")


def _primary(part: Part, parts: Sequence[Part]) -> bool:
    """The last file outside the groups; those before it are what it builds on."""
    outside = [each for each in parts if "/" not in each.path and each.file]
    return part is outside[-1]


def _name_options(config: DictConfig) -> None:
    """The settings of a group keep the name of the option that was chosen, wherever they go; saved
    ones have it already."""
    for group in GROUPS:
        chosen = OmegaConf.select(config.hydra.runtime.choices, group)  # None: swept, or saved
        kind = OmegaConf.get_type(config, group) if chosen else None
        if kind and issubclass(kind, GroupConfig) and config[group].option is None:
            config[group].option = chosen


@contextmanager
def hydra_turn() -> Iterator[None]:
    """Composes with our version base, alone, and puts back what was set before."""
    with _turn:
        version = VersionBase.instance()
        before = version.version_base
        version.setbase(_get_version(VERSION_BASE))
        try:
            yield
        finally:
            version.version_base = before


def _search_path(folders: Sequence[str]) -> ConfigSearchPath:
    """Hydra's own settings, the user's folders, ours, then those of Hydra's plug-ins."""
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("main", f"pkg://{OURS}")
    for folder in folders:
        path.prepend("user", folder, anchor="main")
    for plugin in Plugins.instance().discover(SearchPathPlugin):
        if issubclass(plugin, SearchPathPlugin):
            plugin().manipulate_search_path(path)
    if any(each.startswith(f"{SAVED_SCHEME}:") for each in folders):  # in workers, too
        from border_cli.config.saved import SavedSettings

        Plugins.instance().register(SavedSettings)
    Plugins.instance().register(Schemas)
    register_launcher()
    path.append("schema", f"{Schemas.scheme()}://")
    path.append("schema", "structured://")  # Hydra expects it at the end
    return path


class Composed(NamedTuple):
    """One composition, as Hydra made it."""

    asked: tuple[str | None, ...] = ()  # the primary configuration and the overrides
    config: DictConfig | None = None


class Loader(ConfigLoaderImpl):
    """Composes once or several times; `parts` are those of the last composition."""

    def __init__(
        self, folders: Sequence[str], *, blank: bool = False, composed: Composed | None = None
    ) -> None:
        """`composed`: what a job with the same overrides takes instead of composing it again."""
        path = _search_path(folders)
        if blank:  # schemas: before the imports, the user's are not registered
            Plugins.instance().register(BlankSchemas)
            path.prepend("blank", f"{BlankSchemas.scheme()}://")
        super().__init__(path)
        self.repository = Repository(self.config_search_path)
        self.parts: list[Part] = []
        self._composed = composed or Composed()
        self._read: tuple[object, tuple[list[Override], CachingConfigRepository]] | None = None

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Hydra's entry point composes a job that was composed for its checks."""
        asked, config = self._composed
        if config is not None and run_mode == RunMode.RUN and asked == (config_name, *overrides):
            return deepcopy(config)
        found = super().load_configuration(
            config_name, overrides, run_mode, from_shell, validate_sweep_overrides
        )
        _name_options(found)
        return found

    def read(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        """The overrides as Hydra reads them, and the files that `hydra.searchpath` adds to ours."""
        asked = (config_name, tuple(overrides))
        if self._read is None or self._read[0] != asked:
            read = super()._parse_overrides_and_create_caching_repo(config_name, overrides)
            self._read = (asked, read)
        return self._read[1]

    # Hydra's own name for it: what was read for a check is not read again for the composition.
    _parse_overrides_and_create_caching_repo = read

    def compute_defaults_list(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode
    ) -> DefaultsList:
        """What `--info defaults` shows, and `imports` reads."""
        found = super().compute_defaults_list(config_name, overrides, run_mode)
        found.defaults = with_general_files(found.defaults, self.read(config_name, overrides)[1])
        return found

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Keeps the files before they are merged, so that a refusal can name one."""
        assert self._read is not None  # the command line, as it was read for this composition
        defaults = with_general_files(defaults, repo)
        self.parts = fitted([part_of(each, repo) for each in defaults])
        config = super()._compose_config_from_defaults_list(defaults, repo)
        drop_weaker_limits(config, self.parts, self._read[1][0])
        return config

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """A file as it is; of a tuned file, what applies."""
        loaded = super()._load_single_config(default, repo)
        if not is_tuned(default.config_path or "") or default.package:
            return loaded
        part = next(each for each in self.parts if each.path == default.config_path)
        return replace(loaded, config=part.content)

    def imports(self, config_name: str, overrides: list[str]) -> list[str]:
        """The modules that the chosen files name; nothing is merged."""
        _, repo = self.read(config_name, overrides)
        chosen = self.compute_defaults_list(config_name, overrides, RunMode.MULTIRUN)
        names: list[str] = []
        for default in chosen.defaults:
            if not default.package and default.config_path:
                loaded = repo.load_config(default.config_path)
                names += names_in(OmegaConf.select(loaded.config, "imports") if loaded else None)
        return names

    def options(self, group: str) -> list[str]:
        """What a group offers, in all folders."""
        return list(self.repository.get_group_options(group, ObjectType.CONFIG))

    def primary_configs(self) -> list[str]:
        """What a command may begin with."""
        return [
            each for each in self.options("") if each != HYDRA_SETTINGS and not each.startswith("_")
        ]

    def file(self, path: str) -> str | None:
        """The file of `agent/dqn`, as it is shown; None for a schema."""
        loaded = self.repository.load_config(path)
        found = file_of(loaded.path, path) if loaded else None
        return shown(found) if found else None

    def folders(self) -> list[str]:
        """The folders searched, but for Hydra's own."""
        sources = self.repository.get_sources()
        return [each.path for each in sources if each.provider not in ("hydra", "schema")]
