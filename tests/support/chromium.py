"""Control a headless Chromium over a pipe: no driver, no package, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60
BINARY = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One tab. `requests` and `complaints` hold what the page requested, and its errors."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        command = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        self._process = subprocess.Popen(
            [
                "bash",
                "-c",
                command,
                "bash",
                BINARY,
                *FLAGS,
                f"--user-data-dir={self._profile.name}",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number, self._session = b"", 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Send a command and return its result; events that come before it are recorded."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self._keep(found)

    def open(self, page: Path, width=1280, dark=False):
        """Load a file at this width, in the light or dark theme."""
        self.requests, self.complaints, self._loaded = [], [], False
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 700,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._keep(self._next())

    def evaluate(self, expression):
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, path: Path):
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def _next(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_S)
            assert ready, f"the browser has not answered for {PATIENCE_S} s"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _keep(self, event):
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        if method == "Page.loadEventFired":
            self._loaded = True
        if method in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(said)
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(said)
