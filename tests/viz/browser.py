"""A headless Chromium, driven through its debugging pipe: pages of files are opened, asked, clicked, typed into, and pictured."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def chromium():
    """The program, or None."""
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self, width=1400, height=900, dark=False):
        self.folder = tempfile.mkdtemp(prefix="xhat-browser-")
        to_child, self.writes = os.pipe()
        self.reads, from_child = os.pipe()
        command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
                   f"--user-data-dir={self.folder}", f"--window-size={width},{height}", "about:blank"]
        # The pipe has the numbers 3 and 4 in the browser.
        shell = f"exec 3<&{to_child} 4>&{from_child}; exec " + " ".join(f"'{word}'" for word in command)
        self.process = subprocess.Popen(["bash", "-c", shell], pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.number, self.session, self.messages = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.scheme("dark" if dark else "light")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.writes)
        os.close(self.reads)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, limit):
        while b"\0" not in self.buffer:
            if not select.select([self.reads], [], [], max(0, limit - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.reads, 1 << 20)
            if not got:
                raise EOFError("the browser has ended")
            self.buffer += got
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, seconds=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        limit = time.monotonic() + seconds
        while True:
            answer = self.receive(limit)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        """Remembers what the page complains of."""
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            detail = parameters["exceptionDetails"]
            self.messages.append(detail.get("exception", {}).get("description", detail["text"]))
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.messages.append(str([a.get("value", a.get("description")) for a in parameters["args"]]))
        if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.messages.append(parameters["entry"]["text"])

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path, until="document.body && document.body.dataset.laid", seconds=30):
        """Seconds until the expression holds."""
        start = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait(until, seconds)
        return time.monotonic() - start

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=10):
        limit = time.monotonic() + seconds
        while not self.ask(f"Boolean({expression})"):
            if time.monotonic() > limit:
                raise TimeoutError(f"{expression} does not come true")
            time.sleep(0.02)

    def click(self, selector, count=1):
        at = self.ask(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;
            e.scrollIntoView({{block: "nearest"}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        if at is None:
            raise RuntimeError("there is no " + selector)
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=n)

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def type(self, text):
        for c in text:
            self.key(c, c)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
