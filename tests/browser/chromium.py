"""Headless Chromium, spoken to through a pipe: one page at a time, nothing kept, and everything it says is remembered."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ("chromium-headless-shell", "chromium")
# Nothing of its own may go over a network, and a container has neither a display nor a user for a sandbox.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
    "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
)
ANSWER_SECONDS = 30


def high_pipe():
    low = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
    for end in low:
        os.close(end)
    return high


class Chromium:
    """A context manager. Methods raise RuntimeError with what the browser said."""

    def __init__(self):
        program = next((found for found in map(shutil.which, PROGRAMS) if found), None)
        if program is None:
            raise RuntimeError("Chromium is not installed: run `scripts/setup tests`")
        self.profile = tempfile.mkdtemp(prefix="kazeia-chromium-")
        # The browser reads from descriptor 3 and writes to 4, so the pipes may be neither.
        commands, self.commands = high_pipe()
        self.answers, answers = high_pipe()
        self.log = open(os.path.join(self.profile, "log"), "w+b")
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", program, *FLAGS,
             f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            start_new_session=True)
        os.close(commands)
        os.close(answers)
        self.buffer = b""
        self.last_id = 0
        self.session = None
        self.events = []

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *unused):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(5)
        except (RuntimeError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        os.close(self.commands)
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.answers, 1 << 20) if ready else b""
            if not piece:
                self.log.seek(0)
                said = self.log.read().decode(errors="replace").strip()[-2000:]
                raise RuntimeError(f"Chromium {'ended' if ready else 'does not answer'}: {said}")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url, width, height, dark):
        """Loads `url` and returns what happened meanwhile, as events of the protocol."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read(deadline))
        return self.events

    def value_of(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                         **({"clip": self.whole_page()} if whole else {}))["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def whole_page(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        # No longer than what the drawing code of a browser can hold in one picture.
        return {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
