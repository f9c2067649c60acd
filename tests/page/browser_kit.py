"""A headless Chromium, driven by its DevTools protocol over a websocket."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

WAIT_S = 20.0  # a machine may be busy
KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, "")}


class Tab:
    """One page of a browser; every call waits for its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: WebSocketClientConnection) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        return self._loop.run_until_complete(asyncio.wait_for(self._called(message), WAIT_S))

    async def _called(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._socket.write_message(json.dumps(message))
        while True:
            text = await self._socket.read_message()
            assert text is not None, "the browser is gone"
            found = json.loads(text)
            if found.get("id") == message["id"]:
                assert "error" not in found, found
                return dict(found["result"])
            self.events.append(found)

    def open(self, url: str) -> None:
        """Go there."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a script, a promise's too."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str, wait_s: float = WAIT_S) -> Any:
        """The value of a script as soon as it is true."""
        stop = time.monotonic() + wait_s
        while time.monotonic() < stop:
            try:
                if found := self.run(condition):
                    return found
            except AssertionError:  # between two pages
                pass
            time.sleep(0.02)
        raise AssertionError(f"never came true: {condition}; {self.text()!r}")

    def text(self) -> str:
        """What is on the page."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str) -> None:
        """A key, down and up."""
        code, number, text = KEYS.get(key, (key, ord(key[0].upper()), key))
        about = {"key": key if key in KEYS else text, "code": code, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def look(self, width: int, height: int, *, dark: bool = False, path: Path | None = None, scale: float = 1) -> None:
        """Set the size of the window and the theme; a picture of it, where there is a path."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
            mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        if path is not None:
            time.sleep(0.4)
            path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Close it, whatever it is doing."""
        self.call("Page.close")
        self._socket.close()

    def drain(self) -> None:
        """What came from a browser that is gone by now."""
        self._loop.run_until_complete(asyncio.wait_for(self._drained(), WAIT_S))

    async def _drained(self) -> None:
        while (text := await self._socket.read_message()) is not None:
            found = json.loads(text)
            if "method" in found:
                self.events.append(found)

    def errors(self) -> list[str]:
        """What its console has complained of."""
        found = [one["params"]["entry"] for one in self.events if one["method"] == "Log.entryAdded"]
        thrown = [one for one in self.events if one["method"] == "Runtime.exceptionThrown"]
        return [f"{one['text']} {one.get('url')}" for one in found if one["level"] == "error"] + list(map(str, thrown))


class Browser:
    """Its process, and how to open a tab."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port, self._loop = process, port, asyncio.new_event_loop()
        self._sockets: list[WebSocketClientConnection] = []

    def tab(self, url: str = "about:blank") -> Tab:
        """A new one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request("PUT", "/json/new?about:blank")
        found = json.loads(connection.getresponse().read())
        connection.close()
        socket = self._loop.run_until_complete(_connected(found["webSocketDebuggerUrl"]))
        self._sockets.append(socket)
        tab = Tab(self._loop, socket)
        if url != "about:blank":
            tab.open(url)
        return tab

    def close(self) -> None:
        """End it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for socket in self._sockets:
            socket.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()


async def _connected(url: str) -> WebSocketClientConnection:
    return await websocket_connect(url, max_message_size=1 << 28)


def program() -> str | None:
    """Where a Chromium is, if there is one."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile lies in a folder of its own."""
    path = program()
    assert path is not None
    command = [
        path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
        "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync",
        "--disable-component-update", "--remote-allow-origins=*", f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    note, stop = folder / "DevToolsActivePort", time.monotonic() + WAIT_S
    while not (note.is_file() and "\n" in note.read_text()):
        assert process.poll() is None, "the browser did not start"
        assert time.monotonic() < stop, "the browser did not start"
        time.sleep(0.05)
    found = Browser(process, int(note.read_text().split("\n")[0]))
    try:
        yield found
    finally:
        found.close()


def axe_script() -> str | None:
    """axe-core, where it is installed: AXE names its file, or npm has it."""
    places = [os.environ.get("AXE", ""), "node_modules/axe-core/axe.min.js"]
    return next((Path(place).read_text(encoding="utf-8") for place in places if place and Path(place).is_file()), None)


def violations(tab: Tab) -> list[str]:
    """What axe-core finds wrong with a page, in words; skips the test where axe-core is not there."""
    axe = axe_script()
    if axe is None:
        pytest.skip("axe-core is not there: AXE=.../axe.min.js, of `npm pack axe-core`")
    tab.run(axe + ";0")
    rule = "rule.id + ' ' + rule.nodes.map((node) => node.html + node.failureSummary).join()"
    return list(tab.run(f"axe.run().then((found) => found.violations.map((rule) => {rule}))"))
