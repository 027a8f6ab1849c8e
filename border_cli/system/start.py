"""How child processes are started, and what they are made of."""

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

# A child that is started with `-c` would look for modules in the current directory before all
# others, whatever the parent's sys.path says, which it is sent later. `child` takes it away again.
SAFE_PATH, OURS = "PYTHONSAFEPATH", "border_cli"

_environment = threading.Lock()


def start_context(method: StartMethod, preload: Sequence[str]) -> BaseContext:
    """Where to start processes; `auto` is forkserver where there is one, else spawn.

    The fork server imports `preload` once and every child is a fork of it, so that only the first
    waits for imports. It is one per process, as Python has it: the first caller's `preload` counts,
    and it ends with this process. Never a fork of this process, whose threads and locks a child
    would inherit in any state.
    """
    if method == StartMethod.auto:
        known = multiprocessing.get_all_start_methods()
        method = StartMethod.forkserver if "forkserver" in known else StartMethod.spawn
    context = multiprocessing.get_context(method.value)
    if method == StartMethod.forkserver:
        context.set_forkserver_preload(list(preload))
        with child_environment():
            for start in (resource_tracker.ensure_running, forkserver.ensure_running):
                with _signals_blocked():  # for each, because the first unblocks SIGTERM
                    start()
    return context


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Within the block `PARENT_SIGNALS` are blocked in this thread and in what it starts.

    They may come to the whole process group. The fork server ignores SIGINT itself, but only once
    it has imported what it preloads. The end of the fork server, which nothing else would
    protect, looks like the end of all that it has forked; `child.begin` unblocks them there.
    Nothing is lost here: a signal that comes meanwhile is delivered after the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENT_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refuse_while_imported_by_a_child() -> None:
    """Raises where this is called as a child imports the script that its parent runs.

    Without its guard such a script would begin all over again in every child.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RunFailed(
            "a child process imported this script, and the script started training again: put "
            'the call to train() under `if __name__ == "__main__":`'
        )


@contextmanager
def child_environment() -> Iterator[None]:
    """Within the block this process has the environment variables that children inherit.

    One BLAS thread each: it reads these variables once, when numpy is loaded. Modules are found
    where this process finds them.
    """
    with _environment:
        wanted = dict.fromkeys(BLAS_VARIABLES, "1")
        if not os.environ.get(SAFE_PATH):
            wanted[SAFE_PATH] = OURS
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
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
    """`parts`, for a child that must import these modules first: they register what parts name.

    Raises RunFailed, which names the setting that asks for a child, where the parts cannot be
    pickled.
    """
    try:
        return pickle.dumps((list(imports), pickle.dumps(parts)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunFailed(
            f"{setting} needs parts that can be pickled, such as classes and functions at "
            f"module level: {error}"
        ) from error


def modules_of_recipe(parts: Any) -> set[str]:
    """The modules whose classes and functions these parts refer to when they are pickled."""
    found: set[str] = set()

    class Finder(pickle.Pickler):
        def persistent_id(self, each: Any) -> None:
            if isinstance(each, type | types.FunctionType):
                found.add(each.__module__)

    Finder(io.BytesIO()).dump(parts)
    return found


def unpack(packed: bytes) -> Any:
    """The parts that were given to `pack`, in the child."""
    imports, parts = pickle.loads(packed)
    for module in imports:
        import_module(module)
    return pickle.loads(parts)
