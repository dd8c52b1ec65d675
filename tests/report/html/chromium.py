"""A headless Chromium, driven over a pipe by the DevTools protocol: the standard library is all it takes."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The path of a Chromium or Chrome, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            return path
    return None


class Chromium:
    deadline_s = 60

    def __init__(self, path):
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        # The browser reads its fd 3 and writes its fd 4.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--disable-background-networking",
                 "--disable-dev-shm-usage"]
        self.process = subprocess.Popen(["bash", "-c", command, path, *flags], pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.number = 0
        self.rest = b""
        self.events = []

    def close(self):
        try:
            self.send("Browser.close")
        except (OSError, TimeoutError):
            self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)
        for _ in range(20):  # its children still write there for a moment
            try:
                return self.profile.cleanup()
            except OSError:
                time.sleep(0.1)

    def message(self, deadline):
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            chunk = os.read(self.read, 1 << 20)
            if not chunk:
                raise OSError("the browser ended")
            self.rest += chunk
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def send(self, method, session=None, **parameters):
        self.number += 1
        call = {"id": self.number, "method": method, "params": parameters}
        if session:
            call["sessionId"] = session
        os.write(self.write, json.dumps(call).encode() + b"\0")
        deadline = time.monotonic() + self.deadline_s
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)


class Page:
    """One tab on a file. What it asks of a network and what it complains of is kept."""

    def __init__(self, browser, width=1280, height=900, dark=False):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def open(self, path):
        self.browser.events.clear()
        began = time.monotonic()
        self.send("Page.navigate", url=f"file://{path}")
        while not self.evaluate("document.readyState === 'complete' && (document.documentElement.dataset.drawn || document.querySelector('.broken') !== null)"):
            if time.monotonic() - began > self.browser.deadline_s:
                raise TimeoutError(f"{path} is not drawn")
            time.sleep(0.02)
        return time.monotonic() - began

    def evaluate(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def key(self, name, shift=False):
        code = {"Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Home": 36, "End": 35, "Enter": 13}[name]
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, modifiers=8 if shift else 0, **(text if kind == "keyDown" else {}))

    def click(self, selector):
        box = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center', inline: 'center'}}); "
                            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def complaints(self):
        """Errors and warnings of the console, and exceptions, since the page was opened."""
        self.evaluate("1")  # what was on its way has come
        out = []
        for event in self.browser.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                out.append(parameters["exceptionDetails"].get("exception", {}).get("description", "an exception"))
            if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                out.append(str(parameters["args"]))
            if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                out.append(parameters["entry"]["text"])
        return out

    def requests(self):
        """What it asked for since it was opened, the file itself and data that it holds left out."""
        self.evaluate("1")
        urls = [e["params"]["request"]["url"] for e in self.browser.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("file://", "data:"))] + urls[1:] * (len([u for u in urls if u.startswith("file://")]) > 1)

    def screenshot(self, path, whole=False):
        import base64

        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
