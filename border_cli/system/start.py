"""How child processes are started and how their parts are pickled."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from typing import Any

from border_cli.errors import RunFailed
from border_cli.settings.run import StartMethod
from border_cli.system.forks import PARENT_SIGNALS
from border_cli.system.machine import BLAS_VARIABLES

# A child started with `-c` would search for modules in the current directory first, because it
# receives the parent's sys.path only later. `child` removes the variable again.
SAFE_PATH, OURS = "PYTHONSAFEPATH", "border_cli"

_environment = threading.Lock()


def start_context(method: StartMethod, preload: Sequence[str]) -> BaseContext:
    """Returns the multiprocessing context of a start method; `auto` is forkserver if available,
    else spawn.

    The fork server imports `preload` once and every child is a fork of it, so that only the first
    child waits for imports. Python has one fork server per process: the `preload` of the first call
    is used, and the server ends with this process. Children are never forks of this process: they
    would inherit its threads and locks in an arbitrary state.
    """
    if method == StartMethod.auto:
        methods = multiprocessing.get_all_start_methods()
        method = StartMethod.forkserver if "forkserver" in methods else StartMethod.spawn
    context = multiprocessing.get_context(method.value)
    if method == StartMethod.forkserver:
        context.set_forkserver_preload(list(preload))
        with child_environment():
            for start in (resource_tracker.ensure_running, forkserver.ensure_running):
                with _signals_blocked():  # block again, because the first one unblocks SIGTERM
                    start()
    return context


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Within the block, blocks `PARENT_SIGNALS` in this thread and in processes that it starts.

    The signals may be sent to the whole process group. The fork server ignores only SIGINT, and
    only after its imports. If it ended, all its children would appear to have ended, too.
    `child.begin` unblocks the signals in the children. A signal that arrives within the block is
    delivered after it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refuse_while_imported_by_a_child() -> None:
    """Raises if a child process is importing the script that its parent runs.

    Without the `__main__` guard, such a script would start again in every child.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RunFailed(
            "a child process imported this script, and the script started training again: put "
            'the call to train() under `if __name__ == "__main__":`'
        )


@contextmanager
def child_environment() -> Iterator[None]:
    """Within the block, this process has the environment variables that its children inherit.

    Children use one BLAS thread each (numpy reads the variables once, when it is loaded) and search
    for modules only where this process does.
    """
    with _environment:
        variables = dict.fromkeys(BLAS_VARIABLES, "1")
        if not os.environ.get(SAFE_PATH):
            variables[SAFE_PATH] = OURS
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def wait_for(waitables: Sequence[Any], timeout_s: float) -> None:
    """Returns once one of the `waitables` of child processes is readable, or after `timeout_s`."""
    wait(waitables, timeout_s)


def pack(setting: str, imports: Sequence[str], parts: Any) -> bytes:
    """Pickles `parts` for a child, together with modules that it must import first because they
    register components of the parts.

    Raises RunFailed, naming the setting that requires a child, if the parts cannot be pickled.
    """
    try:
        return pickle.dumps((list(imports), pickle.dumps(parts)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunFailed(
            f"{setting} needs parts that can be pickled, such as classes and functions at "
            f"module level: {error}"
        ) from error


def modules_of_recipe(parts: Any) -> set[str]:
    """Returns the modules whose classes and functions these parts refer to when pickled."""
    modules: set[str] = set()

    class Finder(pickle.Pickler):
        def persistent_id(self, obj: Any) -> None:
            if isinstance(obj, type | types.FunctionType):
                modules.add(obj.__module__)

    Finder(io.BytesIO()).dump(parts)
    return modules


def unpack(packed: bytes) -> Any:
    """Returns the parts passed to `pack`, in the child."""
    imports, parts = pickle.loads(packed)
    for module in imports:
        import_module(module)
    return pickle.loads(parts)
