"""What the tests of the page share: a server, and its page in a Chromium without a window. Standard library only."""
import json
import os
import sys
import tempfile
import unittest

import browser as browsers
from server import Server, slow_model

SKIPPED = 77
SLOWNESS = int(os.environ.get("PAGODA_SLOWNESS", "1"))
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
pagoda = model = None
# Answers requests of the playground with given events instead of the server's; what was sent is in window.asked.
SCRIPT = """(events, pauseMs) => {
    window.fetchOfServer ??= window.fetch;
    window.asked ??= [];
    window.fetch = async (path, options) => {
        if (!path.endsWith("completions")) return fetchOfServer(path, options);
        asked.push(JSON.parse(options.body));
        const encoder = new TextEncoder();
        const body = new ReadableStream({async start(stream) {
            options.signal.addEventListener("abort", () => stream.error(options.signal.reason));
            for (const event of events) {
                stream.enqueue(encoder.encode(`data: ${JSON.stringify(event)}\\n\\n`));
                if (pauseMs) await new Promise((resolve) => setTimeout(resolve, pauseMs));
                if (options.signal.aborted) return;
            }
            stream.close();
        }});
        return new Response(body, {headers: {"Content-Type": "text/event-stream"}});
    };
}"""


def delta(**fields):
    """An event of a chat's stream."""
    return {"choices": [{"index": 0, "delta": fields}]}


class Case(unittest.TestCase):
    is_slow = False  # whether the model is slow enough to be watched

    @classmethod
    def setUpClass(cls):
        cls.log = tempfile.NamedTemporaryFile("r")
        flags = ("--access-log", cls.log.name)
        served = model
        if cls.is_slow:
            served = cls.enterClassContext(tempfile.TemporaryDirectory())
            flags += slow_model(model, served)
        cls.server = Server(pagoda, served, *flags)
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)
        cls.browser = browsers.Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        self.browser.prefer("light")
        self.browser.resize(1280, 860)

    def open(self, view="playground", server=None):
        """A page that knows nothing of the tests before."""
        server = server or self.server
        self.browser.open(f"{server.url}/health")
        self.browser.value("sessionStorage.clear(), localStorage.clear()")
        self.browser.problems.clear()
        self.browser.requests.clear()
        self.browser.open(f"{server.url}/#{view}")
        return self.browser

    def keep(self, name):
        if folder := os.environ.get("PAGODA_SCREENSHOTS"):
            self.browser.screenshot(os.path.join(folder, f"{name}.png"))

    def until(self, expression, seconds=60):
        return self.browser.until(expression, seconds * SLOWNESS)

    def connected(self):
        self.until("document.querySelector('#health').classList.contains('ok')")

    def set_field(self, name, value):
        self.browser.value(f"document.querySelector('#request [name={name}]').value = {json.dumps(value)}")

    def send(self, text):
        self.browser.click("#prompt")
        self.browser.type(text)
        self.browser.press("Enter", 13)

    def answer_ends(self):
        self.until("document.querySelector('#stop').hidden && document.querySelectorAll('.meta').length > 0")
        return self.browser.text(".message:last-child .text")

    def script(self, *events, pause_ms=0):
        """Lets requests of the playground be answered with these events."""
        self.browser.value(f"({SCRIPT})({json.dumps(events)}, {pause_ms})")

    def reload(self):
        self.browser.value("window.isOld = true")
        self.browser.call("Page.reload")
        self.until("!window.isOld && document.readyState === 'complete'")
        self.connected()


def main():
    """Runs the tests of the program that was started."""
    global pagoda, model
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    if not browsers.find():
        print("skipped: there is no Chromium here (Debian: chromium)")
        sys.exit(SKIPPED)
    pagoda, model = sys.argv[1:3]
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
