"""The jobs of a sweep: how they come about and are run, as its configuration says, and how they are
composed and checked."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from border_cli.config.check import REFUSED, explained
from border_cli.config.compose import Composer, Composition, as_typed
from border_cli.config.files import Files
from border_cli.config.job import Job
from border_cli.config.overrides import is_sweep, normalized, parsed
from border_cli.config.tuned import BOTH_WAYS, LIMITS
from border_cli.errors import ConfigError

ONE_PER_COMMAND = (
    *("run_dir", "resume", "imports", "quiet", "dry_run", "statistics"),
    *("sweep.on_error", "sweep.skip_invalid"),
)
LAUNCHER = "hydra/launcher"
NUMBER = "${hydra:job.num}"  # the sub-folder of a job, unless a user chose another
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"  # its name in settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTerms:
    """How the jobs of a sweep come about and are run."""

    jobs: list[list[str]] | None  # the overrides of each; None: its sweeper invents them
    skip_invalid: bool  # leaves out jobs that are refused
    fixed: list[str]  # overrides of every job
    launcher: str  # the choice, such as joblib
    launcher_settings: dict[str, Any]
    root: Path  # the directory of the sweep, absolute
    config: DictConfig  # the composition of the sweep itself, for Hydra's plug-ins
    own_names: bool  # the sub-folder of a job is named by us


def sweep_terms(
    composer: Composer, overrides: Sequence[str], default_launcher: str | None = None
) -> SweepTerms:
    """The jobs of a sweep, its launcher and its directory.

    `default_launcher` is taken where no file and no override chooses one.
    """
    typed = normalized(overrides)
    _refuse_swept(parsed(typed))
    with composer.opened() as files:
        imports = composer.import_for(files, [each for each in typed if not is_sweep(each)])
        with explained(files, typed):
            chosen = files.find_parts(typed)
            if default_launcher and LAUNCHER not in chosen:
                typed = [f"{LAUNCHER}={default_launcher}", *typed]
            return _terms(composer.merge(files, typed, imports, RunMode.MULTIRUN), files)


def _terms(made: Composition, files: Files) -> SweepTerms:
    """The terms in the composition of the sweep itself."""
    hydra = made.config.hydra
    task, jobs = as_typed(hydra.overrides.task), None
    if hydra.sweeper.get("_target_") == BASIC_SWEEPER:
        params = [f"{key}={value}" for key, value in (hydra.sweeper.params or {}).items()]
        jobs = _every_combination(params, task, files)
        if not jobs:
            raise ConfigError(f"the sweep has no job: {' '.join([*params, *task])}")
    settings: Any = OmegaConf.to_container(hydra.launcher, resolve=True)
    return SweepTerms(
        jobs=jobs,
        skip_invalid=OmegaConf.select(made.config, "sweep.skip_invalid") is True,
        fixed=[each for each in task if not is_sweep(each)],
        launcher=str(hydra.runtime.choices.get(LAUNCHER)),
        launcher_settings=settings,
        root=Path(hydra.sweep.dir).absolute(),
        config=made.config,
        own_names=hydra.sweep._get_node("subdir")._value() == NUMBER,
    )


def _every_combination(
    params: Sequence[str], typed: Sequence[str], files: Files
) -> list[list[str]]:
    """The overrides of each job of Hydra's own sweeper, in the order in which they are typed.

    Hydra's `split_arguments` takes one override at a time: it merges overrides of one key into the
    last one. Typed overrides replace `params`, the sweeper's own, of the same key.
    """
    parser = OverridesParser.create(config_loader=files.loader)
    of_typed = parser.parse_overrides(list(typed))
    keys = {each.get_key_element() for each in of_typed}
    of_params = [
        each for each in parser.parse_overrides(list(params)) if each.get_key_element() not in keys
    ]
    choices = []
    for override in (*of_params, *of_typed):
        [jobs] = BasicSweeper.split_arguments([override], None)
        choices.append([text for [text] in jobs])
    return [list(each) for each in product(*choices)]


def _refuse_swept(typed: Sequence[Override]) -> None:
    """Refuses several values of what there is only one of in a command, and of a key that is given
    twice: one of the two would count for nothing."""
    for override in typed:
        if not override.is_sweep_override():
            continue
        key = override.key_or_group
        if key in ONE_PER_COMMAND:
            raise ConfigError(f"{override.input_line}: {key} takes one value")
        name = (key, override.package)
        same = [each for each in typed if (each.key_or_group, each.package) == name]
        if len(same) > 1:
            lines = " ".join(str(each.input_line) for each in same)
            raise ConfigError(f"{lines}: give {key} once if it has several values")


# Compositions that jobs share, with their configurations: to unpickle one is faster than a copy.
_Shared = dict[tuple[str, ...], tuple[Composition, bytes]]


def jobs_of(
    composer: Composer,
    batch: Sequence[Sequence[str]],
    terms: SweepTerms,
    first: int = 0,
    refused: dict[int, ConfigError] | None = None,
) -> list[Job]:
    """The jobs of a sweep, checked, numbered from `first`.

    Where there is a `refused`, it takes the refusals by the jobs' numbers, and the other jobs
    are returned; else the first one raises.

    Jobs that differ in plain values alone share one composition, to which the values are
    applied by Hydra's rules. One that is refused this way is composed alone, so that its
    refusal is the usual one.
    """
    shared: _Shared = {}
    of_hydra, jobs = as_typed(terms.config.hydra.overrides.hydra), []
    with composer.opened() as files:
        for number, overrides in enumerate(batch, first):
            typed = [*of_hydra, *overrides]
            try:
                jobs.append(_one_of(composer, files, typed, number, terms.root, shared))
            except ConfigError as error:
                if refused is None:
                    raise
                refused[number] = error
    return jobs


def _one_of(
    composer: Composer,
    files: Files,
    overrides: Sequence[str],
    number: int,
    root: Path,
    shared: _Shared,
) -> Job:
    """One job; the compositions in `shared` are by all overrides that are no plain values."""
    typed = parsed(normalized(overrides))
    values = _plain_values(typed, files)
    rest = tuple(str(each.input_line) for each in typed if each not in values)
    try:
        if rest not in shared:
            made = composer.merge(files, rest, composer.import_for(files, rest))
            shared[rest] = made, pickle.dumps(made.config)
        made, pickled = shared[rest]
        return _with_values(made, pickled, typed, values).job(number, root)
    except REFUSED:
        pass  # refused once more below, with all that is known of it
    return composer.job_of(files, overrides, number, root)


def _plain_values(typed: Sequence[Override], files: Files) -> list[Override]:
    """The overrides that may be merged last: plain values, of which no other override sets the same
    or a part."""
    plain = [each for each in typed if _is_plain(each, files)]
    others = [
        f"{each.key_or_group}."
        for each in typed
        if each not in plain
        and (isinstance(each.value(), dict) or not files.group_exists(each.key_or_group))
    ]

    def is_alone(override: Override) -> bool:
        key = f"{override.key_or_group}."
        return not any(other.startswith(key) or key.startswith(other) for other in others)

    return list(filter(is_alone, plain))


def _is_plain(override: Override, files: Files) -> bool:
    """Whether an override only sets a value, which changes nothing about what else is merged."""
    return override.type == OverrideType.CHANGE and not (
        override.package is not None
        or override.is_hydra_override()
        or override.key_or_group in {*LIMITS, *BOTH_WAYS, "imports", "trainer"}
        or isinstance(override.value(), dict)
        or "${" in str(override.input_line)
        or files.group_exists(override.key_or_group)
    )


def _with_values(
    made: Composition, pickled: bytes, overrides: Sequence[Override], values: Sequence[Override]
) -> Composition:
    """The composition of a job with these overrides, of which only the values are not merged
    yet."""
    config: DictConfig = pickle.loads(pickled)
    for each in values:
        OmegaConf.update(config, each.key_or_group, each.value(), merge=True)
    typed = [each for each in overrides if not each.is_hydra_override()]
    job = config.hydra.job
    with open_dict(config.hydra):
        config.hydra.overrides.task = [each.input_line for each in typed]
        if not OmegaConf.is_interpolation(job, "override_dirname"):  # as it is in Hydra 1.4
            how = job.config.override_dirname
            named = [each for each in typed if each.key_or_group not in how.exclude_keys]
            name = str(how.item_sep).join(sorted(str(each.input_line) for each in named))
            job.override_dirname = name.replace("=", how.kv_sep)
    return replace(made, config=config)
