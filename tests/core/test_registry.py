"""Registries: components by name and by type of settings, imported when they are built."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from border_cli.errors import ConfigError
from border_cli.registry import GROUPS, Registry, Targets, register_builtin


@dataclass
class KettleConfig:
    litres: int = 1


@dataclass
class PotConfig:
    pass


class Kettle:
    def __init__(self, config: KettleConfig, *, owner: str) -> None:
        self.litres, self.owner = config.litres, owner


HERE = f"{__name__}:Kettle"


@pytest.fixture
def registry() -> Registry:
    registry = Registry("vessel")
    registry.register("kettle", KettleConfig, HERE)
    return registry


def test_build_passes_the_config_first_and_what_only_the_program_knows_by_name(
    registry: Registry,
) -> None:
    kettle = registry.build(KettleConfig(litres=3), owner="me")
    assert isinstance(kettle, Kettle)
    assert (kettle.litres, kettle.owner) == (3, "me")


def test_a_module_that_is_imported_twice_registers_once(registry: Registry) -> None:
    registry.register("kettle", KettleConfig, HERE)
    assert registry.names() == ["kettle"]


def test_another_component_of_the_same_name_is_refused(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="vessel=kettle is registered twice"):
        registry.register("kettle", PotConfig, "other:Kettle")
    assert registry.entry("kettle").config_type is KettleConfig


def test_settings_belong_to_one_component(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"vessel=pot needs settings of its own: .*Kettle"):
        registry.register("pot", KettleConfig, "other:Pot")
    assert registry.names() == ["kettle"]


def test_the_class_is_imported_only_when_it_is_built(registry: Registry) -> None:
    registry.register("pot", PotConfig, "there_is_no_such_module:Pot")
    assert registry.names() == ["kettle", "pot"]
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module"):
        registry.build(PotConfig())


def test_every_group_has_a_component_that_can_be_loaded() -> None:
    register_builtin()
    for registry in GROUPS.values():
        for entry in registry:
            assert registry.load(entry.config_type()).__name__ == entry.target.partition(":")[2]


def test_registering_what_ships_imports_neither_torch_nor_gymnasium() -> None:
    code = (
        "import sys; from border_cli.registry import register_builtin; register_builtin(); "
        "sys.exit(bool({'torch', 'gymnasium'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


class Net:
    pass


def test_networks_are_ours_then_those_of_users_each_by_its_import_path() -> None:
    networks = Targets("agent.network", ("auto", "mlp"))
    networks.register("mine", Net)
    networks.register("late", "not_imported:Yet")
    networks.register("mine", Net)  # as if its module were imported twice
    assert networks.names() == ["auto", "mlp", "mine", "late"]
    assert [networks.target(name) for name in networks.names()] == [
        *(None, None),
        f"{__name__}:Net",
        "not_imported:Yet",
    ]


@pytest.mark.parametrize(
    ("name", "network", "said"),
    [
        ("mine", "elsewhere:Net", r"agent.network=mine is registered twice: .*:Net, elsewhere:Net"),
        ("auto", Net, "agent.network=auto is registered twice: ours, "),
    ],
)
def test_a_name_of_a_network_means_one_class(name: str, network: Any, said: str) -> None:
    networks = Targets("agent.network", ("auto",))
    networks.register("mine", Net)
    with pytest.raises(ConfigError, match=said):
        networks.register(name, network)
