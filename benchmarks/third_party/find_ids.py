"""Finds the Gymnasium environments of a distribution. Runs in its virtual environment.

    python -m benchmarks.third_party.find_ids DISTRIBUTION OUT.json

The file is written after each stage, so that a module that hangs when it is imported loses only
what would have come later.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym

# Modules of a distribution that have no environments, and may do anything when they are imported
OTHER = re.compile(
    r"^(tests?|docs?|examples?|scripts?|benchmarks?|tools|setup|conftest|build)$|train|demo|__main__"
    r"|_test$|^test_|play|visuali[sz]"
)
REGISTERING = re.compile(r"^_?register(_\w*)?$")
MOST_SUBMODULES = 60


def main() -> None:
    name, out = sys.argv[1], Path(sys.argv[2])
    own = tops(name)
    facts: dict[str, Any] = {"modules": own, "errors": {}, "ids": [], "classes": []}
    for stage in (import_tops, call_registering_functions, import_submodules):
        stage(own, facts)
        facts["old_ids"] = old_ids(own)
        facts["classes"] = [] if facts["ids"] else sorted(classes(own))
        facts["multi_agent"] = len([*subclasses(own, "pettingzoo", ("AECEnv", "ParallelEnv"))])
        facts["similar"] = [kind.__name__ for kind in own_classes(own) if is_similar(kind)]
        out.write_text(json.dumps(facts))
        if facts["ids"] or facts["classes"]:
            break


def tops(name: str) -> list[str]:
    """Returns the importable top-level names of a distribution."""
    distribution = importlib.metadata.distribution(name)
    names = dict.fromkeys((distribution.read_text("top_level.txt") or "").split())
    for path in distribution.files or ():
        first, is_module = path.parts[0], path.suffix in (".py", ".so")
        if is_module and first != ".." and not first.endswith((".dist-info", ".data")):
            names[first.partition(".")[0]] = None
    plain = [top for top in names if top.isidentifier() and not OTHER.search(top)]
    return sorted(plain, key=lambda top: (top.startswith("_"), len(top)))


def import_tops(own: list[str], facts: dict[str, Any]) -> None:
    """Imports the modules; ids that Gymnasium's plug-ins have registered need no module."""
    facts["ids"] += [
        {"id": spec.id, "module": "", "entry_point": str(spec.entry_point)}
        for spec in list(gym.registry.values())
        if str(spec.entry_point).partition(":")[0].partition(".")[0] in own and own != ["gymnasium"]
    ]
    if own == ["gymnasium"]:
        facts["ids"] += [{"id": env_id, "module": "", "entry_point": ""} for env_id in gym.registry]
    for top in own:
        import_one(top, facts)


def import_one(name: str, facts: dict[str, Any]) -> None:
    """Imports a module, and adds the ids that it registers."""
    before = set(gym.registry)
    try:
        importlib.import_module(name)
    except BaseException as error:  # modules may raise anything, also SystemExit
        facts["errors"][name] = f"{type(error).__name__}: {error}"
    add_new_ids(before, name, facts)


def add_new_ids(before: set[str], module: str, facts: dict[str, Any]) -> None:
    facts["ids"] += [
        {"id": spec.id, "module": module, "entry_point": str(spec.entry_point)}
        for spec in list(gym.registry.values())
        if spec.id not in before and spec.entry_point is not None
    ]


def call_registering_functions(own: list[str], facts: dict[str, Any]) -> None:
    """Calls functions such as register_envs() of modules whose import registers nothing."""
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        for key, value in list(vars(sys.modules[name]).items()):
            is_own = getattr(value, "__module__", "").partition(".")[0] in own
            if not (inspect.isfunction(value) and is_own and REGISTERING.match(key)):
                continue
            before = set(gym.registry)
            try:
                value()
            except BaseException:  # needs arguments, or registers something else
                continue
            if set(gym.registry) - before:
                facts["function"] = f"{name}.{key}"
                add_new_ids(before, "", facts)
                return


def import_submodules(own: list[str], facts: dict[str, Any]) -> None:
    """Imports the submodules, until one of them registers an id."""
    for name in submodules(own)[:MOST_SUBMODULES]:
        import_one(name, facts)
        if facts["ids"]:
            return


def submodules(own: list[str]) -> list[str]:
    """Returns the submodules by name, those named after environments first."""
    names: list[str] = []
    for top in own:
        names += modules_below(f"{top}.", getattr(sys.modules.get(top), "__path__", []))
    return sorted(names, key=lambda name: "env" not in name.rpartition(".")[2])


def modules_below(prefix: str, folders: Iterable[str]) -> Iterator[str]:
    """Yields modules by name. Unlike `pkgutil.walk_packages`, it imports none of them."""
    for folder in folders:
        for module in pkgutil.iter_modules([folder]):
            if not OTHER.search(module.name):
                yield f"{prefix}{module.name}"
                if module.ispkg:
                    below = str(Path(folder, module.name))
                    yield from modules_below(f"{prefix}{module.name}.", [below])


def classes(own: list[str]) -> Iterator[str]:
    """Yields subclasses of gymnasium.Env that can be constructed without arguments, as
    module:Class."""
    for kind in subclasses(own, "gymnasium", ("Env",)):
        is_wrapper = issubclass(kind, gym.Wrapper)
        if not is_wrapper and not inspect.isabstract(kind) and not _needs_arguments(kind):
            yield f"{_shortest(kind, own)}:{kind.__name__}"


def subclasses(own: list[str], package: str, names: tuple[str, ...]) -> Iterator[type]:
    """Yields the classes of the distribution that derive from one of these of another package."""
    for kind in own_classes(own):
        bases = kind.__mro__[1:]
        if any(base.__name__ in names and base.__module__.startswith(package) for base in bases):
            yield kind


def own_classes(own: list[str]) -> Iterator[type]:
    """Yields the classes of the modules that have been imported."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in own and isinstance(module, ModuleType):
            for kind in list(vars(module).values()):
                if isinstance(kind, type) and kind.__module__ == name:
                    yield kind


def is_similar(kind: type) -> bool:
    """Returns whether a class has the methods of an environment, though it may be of no library."""
    return "env" in kind.__name__.lower() and all(hasattr(kind, key) for key in ("reset", "step"))


def _needs_arguments(kind: type) -> bool:
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(
        parameter.default is parameter.empty and parameter.kind not in kinds
        for parameter in parameters
    )


def _shortest(kind: type, own: list[str]) -> str:
    """Returns the shortest module that has the class."""
    names = [name for name in sys.modules if name.partition(".")[0] in own]
    having = [name for name in names if getattr(sys.modules[name], kind.__name__, None) is kind]
    return min([*having, kind.__module__], key=len)


def old_ids(own: list[str]) -> list[str]:
    """Returns ids that are registered with Gym, Gymnasium's predecessor."""
    registry: Any = getattr(sys.modules.get("gym.envs.registration"), "registry", {})
    specs = getattr(registry, "env_specs", registry)
    return [
        name
        for name, spec in dict(specs).items()
        if str(getattr(spec, "entry_point", "")).partition(":")[0].partition(".")[0] in own
    ]


if __name__ == "__main__":
    main()
