"""What nodes are asked before actors use them, on a cluster of several nodes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from border_cli.ray.connection import ClusterSettings
from border_cli.ray.nodes import ClusterNeeds
from border_cli.ray.travel import travelling
from border_cli.system.start import pack
from tests.support.clusters import RayCluster, Visitor, running_cluster

pytestmark = [pytest.mark.ray, pytest.mark.long]

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
    """Modules of the user's own, and folders that spoil a node."""
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
    """Nodes that each lack something; a resource of its own leads to each."""
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
    settings = ClusterSettings(address=cluster.address, modules=travelling(["my_trials"]))
    with Visitor(settings) as visitor:
        assert visitor.next().address == cluster.address
        yield visitor


def trial(name: str) -> bytes:
    return pack("actor_manager=ray", ["my_trials"], getattr(sys.modules["my_trials"], name))


def on(name: str, trial: bytes | None = None) -> ClusterNeeds:
    """What only one node has."""
    return replace(NEEDS, resources={"CPU": 1.0, name: 1.0}, trial=trial)


def test_modules_of_the_users_own_travel_and_an_environment_that_fails_there_is_refused(
    visitor: Visitor,
) -> None:
    assert visitor.look(on("good", trial("broken"))) == 1
    said = visitor.look(on("unlicensed", trial("broken")))
    assert said.startswith("actor_manager=ray: node unlicensed (")
    assert said.endswith("OSError: no license server")


def test_a_node_is_refused_by_name_for_what_it_lacks(visitor: Visitor) -> None:
    said = visitor.look(on("old", trial("fine")))
    assert "node old (" in said
    assert re.search(r"it has border_cli 0\.0\.9 \(\w+\), but this machine has 0\.1\.0 ", said)
    said = visitor.look(on("empty", trial("fine")))
    assert "node empty (" in said
    assert "it lacks the module 'border_cli': install its package there" in said
    said = visitor.look(on("bare", trial("needs_gymnasium")))
    assert "node bare (" in said
    assert "it lacks the module 'gymnasium'" in said


def test_a_resource_that_no_node_has_is_named_with_the_nearest(visitor: Visitor) -> None:
    said = visitor.look(on("goood"))
    assert said.startswith("actor_manager.resources: no node of the cluster has 'goood', did you")
    assert "did you mean good?" in said
    said = visitor.look(replace(NEEDS, resources={"CPU": 3.0}))
    assert "no node of the cluster has 3 CPU, even when idle" in said


def test_more_actors_than_fit_are_refused_with_how_many_do(visitor: Visitor) -> None:
    said = visitor.look(replace(on("good"), resources={"CPU": 1.0, "good": 0.4}, count=3))
    assert "3 actors of 1 CPU, 0.4 good each (actor_manager.resources) do not fit" in said
    assert "2 of them fit: actor_manager.num_actors=2, or num_actors=auto" in said
