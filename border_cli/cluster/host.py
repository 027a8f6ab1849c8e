"""What runs in a process of a Ray cluster around its purpose. Imported there only."""

from __future__ import annotations

import importlib
import os
import socket
from typing import Any

import ray

from border_cli.cluster.calls import Place


class Host:
    """An object of a class that is named by its path; its methods are called from elsewhere."""

    def __init__(self, target: str, *args: Any) -> None:
        module, _, name = target.partition(":")
        self._hosted = getattr(importlib.import_module(module), name)(*args)

    def place(self) -> Place:
        """Prepares the object; where it is."""
        self._hosted.prepare()
        node = ray.get_runtime_context().get_node_id()
        return Place(node, socket.gethostname(), os.getpid())

    def call(self, method: str, *args: Any) -> Any:
        """Calls one of its methods."""
        return getattr(self._hosted, method)(*args)
