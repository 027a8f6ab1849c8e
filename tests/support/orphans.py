"""A script with actor processes, which a test kills to orphan them.

    python -m tests.support.orphans FOLDER START_METHOD [SIBLING]

One actor samples; the other hangs in C and never releases the interpreter lock. With SIBLING both
sample, and the script forks a process that inherits all open files and outlives it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from border_cli.system.start import StartMethod
from tests.support.actor_managers import Built, snapshot
from tests.support.scripted_envs import Life, hang_in_c


def main(folder: Path, start_method: StartMethod, *, sibling: bool) -> None:
    lives = [Life(deed=hang_in_c, at=3), Life()] if not sibling else []
    built = Built(
        "process", lives=lives, folder=folder, num_actors=2, n_buffer=4, start_method=start_method
    )
    with built.manager as manager:
        manager.publish(snapshot())
        manager.permit(10**9)
        built.scripted.wait_for("seed", 2)
        if lives:
            built.scripted.wait_for("deed")
        if sibling:
            forked = os.fork()
            if not forked:
                threading.Event().wait(60)  # longer than the test
                os._exit(0)
            (folder / "sibling-0").write_text(str(forked))
        print("ready", flush=True)
        while True:
            manager.receive(1.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), StartMethod(sys.argv[2]), sibling=len(sys.argv) > 3)
