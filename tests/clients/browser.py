"""Chromium without a window, driven by its DevTools protocol over two pipes. Standard library only."""
import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The command of a Chromium; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Navigated(AssertionError):
    """The page went away while it was asked."""


class Browser:
    """`with Browser() as browser`: one tab, and what it told: `problems`, `requests`."""

    def __init__(self, width=1280, height=900):
        self.size = (width, height)
        self.ids = itertools.count(1)
        self.answers = {}
        self.problems = []  # messages of the console that are errors or warnings, and exceptions
        self.requests = []  # addresses that the page asked for
        self.unread = b""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="pagoda-browser-")
        to_browser, self.input = os.pipe()
        self.output, from_browser = os.pipe()

        def as_three_and_four():
            # In two steps: either may be 3 or 4 already.
            ours = (os.dup(to_browser), os.dup(from_browser))
            safe = [fd if fd > 4 else os.dup2(fd, fd + 40) for fd in ours]
            os.dup2(safe[0], 3)
            os.dup2(safe[1], 4)

        command = [find(), "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder}",
                   "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-extensions",
                   "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
                   "--force-color-profile=srgb", "--hide-scrollbars", "about:blank"]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        self.process = subprocess.Popen(command, preexec_fn=as_three_and_four, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(*self.size)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.input)
        os.close(self.output)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        number = next(self.ids)
        message = {"id": number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.input, data):]
        deadline = time.monotonic() + 60
        while number not in self.answers:
            self.read(deadline - time.monotonic(), method)
        answer = self.answers.pop(number)
        if "navigated" in answer.get("error", {}).get("message", ""):
            raise Navigated(method)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def read(self, seconds, what="anything"):
        """Takes what the browser says, waiting for something; TimeoutError when nothing comes."""
        if seconds <= 0 or not select.select([self.output], [], [], seconds)[0]:
            raise TimeoutError(f"the browser does not answer {what}")
        data = os.read(self.output, 1 << 20)
        if not data:
            raise AssertionError("the browser has ended")
        *messages, self.unread = (self.unread + data).split(b"\0")
        for message in messages:
            self.take(json.loads(message))

    def take(self, message):
        parameters = message.get("params", {})
        match message.get("method"):
            case None:
                self.answers[message["id"]] = message
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.problems.append(" ".join(str(each.get("value", each.get("description")))
                                              for each in parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip())
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])

    # -- what a test does ----------------------------------------------------------------------------------------------

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def prefer(self, scheme):
        """light or dark, as the system would say."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer}"
        where = json.dumps(url.split("#")[0])
        self.until(f"location.href.split('#')[0] === {where} && document.readyState === 'complete'")

    def value(self, expression):
        """Of a JavaScript expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, seconds=30):
        """Waits until it is true, and returns what it is."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.value(expression)
            except Navigated:
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {expression}; the console: {self.problems}")
            time.sleep(0.03)

    def click(self, selector):
        """With the mouse, so that what lies above it would get it."""
        x, y = self.value(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "nearest"}});
            const {{left, top, width, height}} = element.getBoundingClientRect();
            return [left + width / 2, top + height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text):
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
