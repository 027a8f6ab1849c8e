"""One composition: the files that take part are found, their modules imported, what is tuned is
added, and Hydra merges them; what comes out is checked and becomes a Job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import omegaconf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config import check
from border_cli.config.alternatives import drop_weaker_alternatives
from border_cli.config.job import Job, Source, modules_of, yaml_text
from border_cli.config.overrides import chooses, parsed
from border_cli.config.search_path import homes, import_modules, names_in
from border_cli.config.sources import TUNED, ConfigFile, Files, settings_in
from border_cli.config.tuned import add_tuned, drop_weaker_limits
from border_cli.settings.base import flat
from border_cli.system.files import SETTINGS, full_path

if TYPE_CHECKING:
    from border_cli.config.saved_names import SavedSettings

ANY_ENV = "gym"  # the choice that takes any env.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """Merged settings, those of Hydra among them, before interpolations are resolved."""

    config: DictConfig
    parts: Sequence[ConfigFile]
    imports: Sequence[str]  # modules that files and overrides name
    saved: SavedSettings | None = None  # the settings of another run that it began with

    def job(self, number: int | None, root: Path | None, *, trust: bool) -> Job:
        """The job, checked. `number`: within a sweep, whose directory is `root`, or as its own
        settings say."""
        config = self.config
        check.refuse_untyped(config, self.parts)
        hydra = config.hydra
        if number is not None:
            with open_dict(hydra):
                hydra.job.num, hydra.job.id = number, str(number)
        record = _record(config)
        HydraConfig.instance().set_config(config)  # which `${hydra:…}` reads
        made = check.run_settings(config)
        if self.saved is not None:
            self.saved.refuse_values(made, self._typed(as_typed(hydra.overrides.task)))
        folder = Path(hydra.run.dir)
        if number is not None:
            folder = Path(root or hydra.sweep.dir) / hydra.sweep.subdir
        made = replace(made, imports=list(dict.fromkeys([*self.imports, *made.imports])))
        return Job(
            folder=full_path(folder),
            config=made,
            overrides=tuple(as_typed(hydra.overrides.task)),
            number=number,
            sources=_sources(self.parts),
            record=record,
            import_paths=tuple(homes(modules_of(made))),
            trust=trust,
        )

    def _typed(self, overrides: Sequence[str]) -> set[str]:
        """The settings that are typed, or are in a file besides the saved ones."""
        sources: list[tuple[str, Any]] = [
            (part.package, OmegaConf.to_container(part.content, resolve=False))
            for part in self.parts
            if part.path != SETTINGS.stem
        ]
        sources += [(each.key_or_group, each.value()) for each in parsed(overrides)]
        return {name for place, content in sources for name in flat(content, place)}


def compose_files(
    files: Files, config_name: str, overrides: Sequence[str], imports: Sequence[str], mode: RunMode
) -> Composition:
    """Composes files whose modules are imported."""
    files.find_parts(config_name, overrides)
    typed_overrides = parsed(overrides)
    add_tuned(files, {each.key_or_group for each in typed_overrides if chooses(each)})
    typed = {
        name
        for each in typed_overrides
        if not (each.is_sweep_override() or each.is_delete())
        for name in settings_in(each.value(), each.key_or_group)
    }
    drop_weaker_limits(files, typed)
    drop_weaker_alternatives(files, typed)
    config = files.loader.load_configuration(
        config_name, list(overrides), mode, validate_sweep_overrides=mode == RunMode.RUN
    )
    return Composition(config=config, parts=files.parts, imports=imports, saved=files.saved)


def import_named(
    files: Files,
    config_name: str,
    overrides: Sequence[str],
    own: Sequence[str],
) -> list[str]:
    """Imports the modules that the chosen files and the command line name, which register
    components; each once, in order, after its `own`. Those of saved settings are checked.

    Files that do not compose are left to the composition, which refuses them.
    """
    names, of_saved = list(own), list[str]()
    files.lenient = True
    with suppress(*check.REFUSED):
        files.find_parts(config_name, overrides)
        for part in files.parts:
            if not part.package and part.file:
                is_saved = files.saved is not None and part.path == config_name
                named = of_saved if is_saved else names
                named += names_in(OmegaConf.select(part.content, "imports"))
    files.lenient = False
    for override in parsed(overrides):
        if override.key_or_group == "imports" and not override.is_sweep_override():
            names += names_in(override.value())
    if files.saved is not None:
        files.saved.refuse_imports(names)
    found = list(dict.fromkeys([*of_saved, *names]))
    if found:
        import_modules(found)
        files.forget_parts()
    return found


def either(first: str | None, second: str) -> str:
    """`first` unless it is null; `~` is the home folder."""
    return str(Path(first).expanduser()) if first else second


def run_name(*, _root_: DictConfig) -> str:
    """`dqn_cartpole`, after the options of agent and env; with env=gym the id as a file name.

    `ALE/Pong-v5` becomes `ALE-Pong-v5`, and `my_envs:Corridor-v0` `my_envs-Corridor-v0`.
    """
    agent, env, env_id = (
        str(OmegaConf.select(_root_, key, throw_on_missing=False) or "")
        for key in ("agent.option", "env.option", "env.id")
    )
    named = re.sub(r"[^\w.+-]+", "-", env_id).strip(".-") if env == ANY_ENV else ""
    return f"{agent}_{named or env}"


def register_resolvers() -> None:
    """Makes `${border.…}`, by which conf/hydra_settings.yaml says where a run is written, known to
    OmegaConf; repeating it changes nothing."""
    named = {"or": either, "name": run_name}
    # OmegaConf 2.4 has another name for it, which means something else before.
    new = omegaconf.__version__ >= "2.4"
    register: Any = OmegaConf.register_resolver if new else OmegaConf.register_new_resolver
    for name, resolver in named.items():
        register(f"border.{name}", resolver, replace=True)


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
