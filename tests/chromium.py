"""A browser that a test drives step by step: Chromium's DevTools protocol over two pipes, without another package.

`look` in `test_browser.py` asks many pages one question each, in virtual time. Here one page is opened and used: keys,
clicks, sizes, colours, files that do not arrive; and time is real.
"""

import base64
import json
import os
import select
import subprocess
import sys
import time

from test_browser import BROWSER, FLAGS

PATIENCE = 180  # seconds


class Chromium:
    """One window. Use it as a context manager.

    Attributes
    ----------
    said : list of str
        What the page wrote to the console as an error or a warning, and what it threw.
    asked : list of str
        The addresses that the page asked for.
    """

    def __init__(self, profile):
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        command = [BROWSER, *FLAGS.split(), f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The browser reads from its file 3 and writes to its file 4.
        moved = "from os import dup2, execv; from sys import argv; dup2(int(argv[1]), 3); dup2(int(argv[2]), 4); "
        moved += "execv(argv[3], argv[3:])"
        start = [sys.executable, "-c", moved, str(to_browser), str(to_us), *command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(start, pass_fds=(to_browser, to_us), **quiet)
        os.close(to_browser), os.close(to_us)
        self._in, self._out = os.fdopen(from_us, "wb", 0), os.fdopen(from_browser, "rb", 0)
        self._buffer, self._number, self._session = b"", 0, None
        self.said, self.asked = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.terminate()
        self._process.wait(30)
        self._in.close(), self._out.close()

    def call(self, method, **params):
        """Send one command of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self):
        while b"\0" not in self._buffer:
            if not select.select([self._out], [], [], PATIENCE)[0]:
                raise TimeoutError(f"the browser has not answered for {PATIENCE} s")
            part = os.read(self._out.fileno(), 2**20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.said.append(" ".join(str(argument.get("value", argument)) for argument in params["args"]))
        elif event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.said.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event.get("method") == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def open(self, address, width=1200, height=900, dark=False):
        """Open a page in a window of this size, and wait until its scripts have run."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.said.clear(), self.asked.clear()
        self.call("Page.navigate", url=address)
        self.wait(f'document.readyState === "complete" && location.href === {json.dumps(address)}')

    def ask(self, expression):
        """The value of a JavaScript expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, condition, seconds=20):
        """Wait until a JavaScript expression is true, and return its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.ask(condition):
                return found
            time.sleep(0.05)
        raise TimeoutError(f"after {seconds} s it is still not so: {condition}")

    def press(self, key, text=""):
        """Press and release a key, as a reader does: ``press("Tab")``, ``press("a", "a")``."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}
        text = text or {"Enter": "\r", " ": " "}.get(key, "")
        event = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper())), "text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def picture(self, path, whole=False):
        """Save what the window shows (or the whole page) as a PNG file."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
