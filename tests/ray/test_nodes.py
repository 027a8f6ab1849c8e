"""Checks of the nodes before actors use them, on a cluster of several nodes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from border_cli import __version__
from border_cli.ray.connection import ClusterSettings
from border_cli.ray.nodes import ClusterNeeds
from border_cli.ray.travel import find_own_modules
from border_cli.system.start import pack
from tests.support.case_sampling import weekly
from tests.support.clusters import RayCluster, Visitor, running_cluster

pytestmark = [pytest.mark.ray, pytest.mark.long, weekly]

TRIALS = """
import os

def fine():
    pass

def broken():
    if "BROKEN" in os.environ:
        raise OSError("no license server")

def needs_gymnasium():
    import gymnasium
"""
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
"""
LACKS = {"empty": "border_cli", "bare": "gymnasium"}
NEEDS = ClusterNeeds(setting="actor_manager=ray", resources={"CPU": 1.0}, count=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a user module, and with subfolders that make a node unusable."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "my_trials.py").write_text(TRIALS)
    old = folder / "old" / "border_cli"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text('__version__ = "0.0.9"\n')
    for name in LACKS.values():
        (folder / f"without_{name}").mkdir()
        (folder / f"without_{name}" / "sitecustomize.py").write_text(WITHOUT.format(name=name))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder
        sys.modules.pop("my_trials", None)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RayCluster]:
    """One good node and several unusable ones, each selected by a resource of its own."""
    paths = {name: folder / f"without_{package}" for name, package in LACKS.items()}
    paths["old"] = folder / "old"
    with running_cluster() as cluster:
        cluster.add("head", cpus=2, resources={"good": 1})
        for name, path in paths.items():
            cluster.add(name, cpus=1, resources={name: 1}, env_vars={"PYTHONPATH": str(path)})
        cluster.add("unlicensed", cpus=1, resources={"unlicensed": 1}, env_vars={"BROKEN": "1"})
        yield cluster


@pytest.fixture
def visitor(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Visitor]:
    import my_trials  # type: ignore[import-not-found]  # noqa: F401

    monkeypatch.chdir(tmp_path)  # Ray's workers look for modules in the driver's current directory
    settings = ClusterSettings(address=cluster.address, modules=find_own_modules(["my_trials"]))
    with Visitor(settings) as visitor:
        assert visitor.next().address == cluster.address
        yield visitor


def trial(name: str) -> bytes:
    return pack("actor_manager=ray", ["my_trials"], getattr(sys.modules["my_trials"], name))


def needs_of(name: str, trial: bytes | None = None) -> ClusterNeeds:
    """Requirements that only the named node meets."""
    return replace(NEEDS, resources={"CPU": 1.0, name: 1.0}, trial=trial)


def test_modules_of_the_users_own_travel_and_an_environment_that_fails_there_is_refused(
    visitor: Visitor,
) -> None:
    assert visitor.look(needs_of("good", trial("broken"))) == 1
    message = visitor.look(needs_of("unlicensed", trial("broken")))
    assert message.startswith("actor_manager=ray: node unlicensed (")
    assert message.endswith("OSError: no license server")


def test_a_node_is_refused_by_name_for_what_it_lacks(visitor: Visitor) -> None:
    message = visitor.look(needs_of("old", trial("fine")))
    assert "node old (" in message
    ours = re.escape(__version__)
    assert re.search(rf"border_cli 0\.0\.9 \(\w+\), but this machine has {ours} \(", message)
    message = visitor.look(needs_of("empty", trial("fine")))
    assert "node empty (" in message
    assert "it lacks the module 'border_cli': install its package there" in message
    message = visitor.look(needs_of("bare", trial("needs_gymnasium")))
    assert "node bare (" in message
    assert "it lacks the module 'gymnasium'" in message


def test_a_resource_that_no_node_has_is_named_with_those_that_exist(visitor: Visitor) -> None:
    message = visitor.look(needs_of("goood"))
    assert message.startswith("actor_manager.resources: no node of the cluster has ")
    assert re.search(r"goood, even when idle \(known: .*\bgood\b", message)
    message = visitor.look(replace(NEEDS, resources={"CPU": 3.0}))
    assert "no node of the cluster has 3 CPU, even when idle" in message


def test_more_actors_than_fit_are_refused_with_how_many_do(visitor: Visitor) -> None:
    message = visitor.look(replace(needs_of("good"), resources={"CPU": 1.0, "good": 0.4}, count=3))
    assert "3 actors of 1 CPU, 0.4 good each (actor_manager.resources) do not fit" in message
    assert "2 of them fit: actor_manager.num_actors=2, or num_actors=auto" in message
