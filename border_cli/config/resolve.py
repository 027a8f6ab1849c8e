"""Interpolations, without the process-wide HydraConfig, and values in which `${` means itself."""

from __future__ import annotations

import operator
import re
import sys
from dataclasses import fields, is_dataclass, replace
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

_OPENING = re.compile(r"(\\*)\$\{")
_HYDRA_VALUE = re.compile(r"\$\{hydra:\s*([\w.]+)\s*\}")


def escaped(text: str) -> str:
    """The text as OmegaConf must be given it where `${` in it means nothing."""
    return _OPENING.sub(lambda found: 2 * found[1] + r"\${", text)


def literal(value: Any) -> Any:
    """A value as OmegaConf can hold it: `${` is escaped, and a numpy scalar becomes a number.

    What needs no change is returned as the same object.
    """
    if type(value) is str:
        return escaped(value) if "${" in value else value
    numpy = sys.modules.get("numpy")  # importing it would slow down every answer
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, list | tuple):
        entries = [literal(each) for each in value]
        return entries if any(map(operator.is_not, entries, value)) else value
    settings = is_dataclass(value) and not isinstance(value, type)
    if not settings and not isinstance(value, dict):
        return value
    before = value
    if settings:
        before = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    after = {name: literal(each) for name, each in before.items()}
    if not any(after[name] is not each for name, each in before.items()):
        return value
    return replace(value, **after) if settings else after


def resolve_settings(config: DictConfig) -> None:
    """Replaces every interpolation outside `hydra` by its value.

    `${hydra:x}` reads a singleton, which may belong to another app; `${hydra.x}` reads this
    composition. So the former is rewritten first.
    """
    _localise(config)
    for key in [str(each) for each in config if each != "hydra"]:
        _resolve(config, key)


def _resolve(node: Any, key: Any) -> None:
    """As `OmegaConf.resolve`, which would take what comes out of `\\${x}` for one more `${x}`."""
    if OmegaConf.is_interpolation(node, key):
        value = node[key]
        node[key] = escaped(value) if isinstance(value, str) else value
    child = node._get_node(key)
    if isinstance(child, DictConfig | ListConfig) and isinstance(child._content, dict | list):
        keys = list(range(len(child))) if isinstance(child, ListConfig) else list(child)
        for each in keys:
            _resolve(child, each)


def _localise(node: Any) -> None:
    if isinstance(node, DictConfig | ListConfig) and isinstance(node._content, dict | list):
        for child in _children(node):
            _localise(child)
    elif node is not None and isinstance(node._value(), str) and "${hydra:" in node._value():
        node._set_value(_HYDRA_VALUE.sub(r"${hydra.\1}", node._value()))


def _children(node: DictConfig | ListConfig) -> list[Any]:
    if isinstance(node, ListConfig):
        return [node._get_node(index) for index in range(len(node))]
    return [node._get_node(key) for key in node]
