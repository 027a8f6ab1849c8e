"""A headless Chromium, driven over the pipe of its devtools protocol; no package is needed."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_S = 60.0


def executable() -> str | None:
    """The browser's path; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page; every command is answered before the next is sent."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._write, self._read = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; events that arrive before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                if self._session:
                    self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _receive(self) -> dict[str, Any]:
        deadline_s = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._buffer:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left_s)
            received = os.read(self._read, 1 << 16) if ready else b""
            if not received:
                raise TimeoutError("the browser ended, or does not answer")
            self._buffer += received
        whole, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(whole)
        return answer

    def open(self, path: Path) -> None:
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self.value("document.readyState === 'complete' && location.protocol === 'file:'"):
            pass  # each question waits for the browser's answer

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float, count: int = 1) -> None:
        self.move(x, y)
        for number in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                button = {"button": "left", "clickCount": number}
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def middle_of(self, selector: str, index: int = 0) -> tuple[float, float]:
        """Of an element, which is scrolled into view."""
        element = f"document.querySelectorAll({json.dumps(selector)})[{index}]"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        box = self.value(f"(b => [b.x, b.y, b.width, b.height])({element}.getBoundingClientRect())")
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def requested(self) -> list[str]:
        """The addresses of all requests so far."""
        found = (each for each in self.events if each["method"] == "Network.requestWillBeSent")
        return [each["params"]["request"]["url"] for each in found]

    def complaints(self) -> list[Any]:
        """What the page's scripts raised, and what the browser logged as an error."""
        raised = [e["params"] for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        return raised + [each for each in logged if each["level"] == "error"]


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a browser that keeps its profile in `folder`; nothing of it is left afterwards."""
    program = executable()
    assert program
    to_browser, from_browser = os.pipe(), os.pipe()
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    size = ("--window-size=1200,1000", f"--user-data-dir={folder}", "--no-first-run")
    # The browser reads descriptor 3 and writes 4.
    script = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
    ends = [to_browser[0], from_browser[1]]
    process = subprocess.Popen(
        ["bash", "-c", script, *map(str, ends), program, *flags, *size],
        pass_fds=ends,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for end in ends:
            os.close(end)
        page = Page(to_browser[1], from_browser[0])
        yield page
        page._session = None
        page.send("Browser.close")
        process.wait(TIMEOUT_S)
    finally:
        for end in (to_browser[1], from_browser[0]):
            os.close(end)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)
