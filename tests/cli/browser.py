"""Drives Chromium by its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Without --allow-pre-commit-input, keys that are pressed before a new page is painted are lost.
_OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --remote-debugging-port=0 "
    "--allow-pre-commit-input"
)


class Browser:
    """One process of Chromium; `page` gives a new tab."""

    def __init__(self) -> None:
        import aiohttp

        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [str(CHROMIUM), *_OPTIONS.split(), f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._loop = asyncio.new_event_loop()
        port, path = self._address()

        async def connect() -> Any:
            self._session = aiohttp.ClientSession()
            return await self._session.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=0)

        self._socket = self._loop.run_until_complete(connect())
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def _address(self) -> list[str]:
        place = Path(self._folder.name) / "DevToolsActivePort"
        end = time.monotonic() + 60
        while time.monotonic() < end:
            lines = place.read_text().split("\n") if place.exists() else []
            if len(lines) == 2:
                return lines
            time.sleep(0.05)
        raise TimeoutError("Chromium does not start")

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command and wait for its result; events that come meanwhile are kept."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session

        async def exchange() -> Any:
            await self._socket.send_str(json.dumps(message))
            while True:
                found = json.loads((await asyncio.wait_for(self._socket.receive(), 60)).data)
                if found.get("id") == number:
                    return found
                self.events.append(found)

        found = self._loop.run_until_complete(exchange())
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        return found["result"]

    def page(self) -> Page:
        """A new tab."""
        return Page(self)

    def close(self) -> None:
        """End the process."""

        async def leave() -> None:
            await self._socket.close()
            await self._session.close()

        self._loop.run_until_complete(leave())
        self._loop.close()
        self._process.terminate()
        self._process.wait(20)
        self._folder.cleanup()


class Page:
    """A tab."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        found = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """A command to this tab."""
        return self._browser.call(method, self._session, **params)

    def js(self, code: str) -> Any:
        """The value of an expression."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, code: str, seconds: float = 60) -> Any:
        """The value of an expression as soon as it is true, on a page whose script is ready."""
        end = time.monotonic() + seconds
        ready = f"document.body.dataset.ready && ({code})"
        quiet = (
            f"(() => {{ try {{ return {ready} }} catch {{ return null }} }})()"  # a page may be on its way
        )
        while not (value := self.js(quiet)):
            assert time.monotonic() < end, f"never true: {code}"
            time.sleep(0.02)
        return value

    def go(self, url: str) -> None:
        """Open an address and wait for the page's script."""
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)}")

    def press(self, key: str) -> None:
        """Press a key, as a person does."""
        code = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}.get(key, 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        press = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", **press)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def form(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window, and light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self) -> str:
        """What is seen, as PNG in base64."""
        return str(self.call("Page.captureScreenshot")["data"])

    def told(self, method: str) -> list[Any]:
        """The events of one kind so far."""
        self.js("1")
        return [
            event["params"]
            for event in self._browser.events
            if event.get("method") == method and event.get("sessionId") == self._session
        ]

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)
