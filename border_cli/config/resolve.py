"""Interpolations, without the process-wide HydraConfig."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

_HYDRA_VALUE = re.compile(r"\$\{hydra:\s*([\w.]+)\s*\}")


def resolve_settings(config: DictConfig) -> None:
    """Replaces every interpolation outside `hydra` by its value.

    `${hydra:x}` reads a singleton, which may belong to another app; `${hydra.x}` reads this
    composition. So the former is rewritten first.
    """
    _localise(config)
    for key in [str(each) for each in config if each != "hydra"]:
        if OmegaConf.is_interpolation(config, key):
            config[key] = config[key]
        node = config._get_node(key)
        if isinstance(node, DictConfig | ListConfig) and isinstance(node._content, dict | list):
            OmegaConf.resolve(node)


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
