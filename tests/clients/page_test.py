#!/usr/bin/env python3
"""The page in a Chromium without a window. Standard library only; skipped (77) where there is no Chromium.

usage: page_test.py PAGODA MODEL_DIR [unittest arguments]

PAGODA_SCREENSHOTS=FOLDER: keeps pictures of what the tests see there.
"""
import json
import os
import sys
import tempfile
import time
import unittest

import browser as browsers
from raw_stream import RawStream
from server import Server, slow_model

SKIPPED = 77
SLOWNESS = int(os.environ.get("PAGODA_SLOWNESS", "1"))
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
pagoda = model = None


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


class Page(Case):
    def test_it_loads_without_an_error_and_asks_this_server_alone(self):
        page = self.open()
        self.connected()
        self.assertEqual(page.text("#served"), self.server.json("GET", "/v1/models")["data"][0]["id"])
        page.click("#tab-engine")
        self.until("document.querySelector('#blocks-summary').textContent.includes('blocks of')")
        self.assertEqual(page.problems, [])
        self.assertTrue(page.requests)
        for address in page.requests:
            self.assertTrue(address.startswith(self.server.url), address)

    def test_both_themes_follow_the_system_until_one_is_chosen(self):
        page = self.open()
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.value(ground)
        page.prefer("dark")
        self.until(f"{ground} !== {json.dumps(light)}")
        page.click("#theme")  # from auto to light
        self.until(f"{ground} === {json.dumps(light)}")
        page.value("location.reload()")
        self.until(f"document.querySelector('#theme')?.textContent === 'Light' && {ground} === {json.dumps(light)}")

    def test_a_phone_needs_no_scrolling_to_the_side(self):
        self.browser.resize(390, 844, mobile=True)
        for view in ("playground", "engine"):
            page = self.open(view)
            self.connected()
            self.until("document.fonts.status === 'loaded'")
            self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 390)
            self.keep(f"phone-{view}")

    def test_the_tabs_are_reached_by_keys(self):
        page = self.open()
        page.value("document.querySelector('#tab-playground').focus()")
        page.press("ArrowRight", 39)
        self.until("!document.querySelector('#view-engine').hidden && document.activeElement.id === 'tab-engine'")


class Playground(Case):
    def test_an_answer_streams_and_says_what_it_took(self):
        page = self.open()
        self.connected()
        self.set_field("max_tokens", "400")
        self.set_field("more", '{"ignore_eos": true}')
        page.value("""
            window.lengths = new Set();
            new MutationObserver(() => lengths.add(document.querySelector('.message.assistant .text')?.textContent.length))
                .observe(document.querySelector('#transcript'), {childList: true, subtree: true, characterData: true});
        """)
        self.send("Tell me a story.")
        self.assertGreater(len(self.answer_ends()), 100)
        self.assertGreater(page.value("lengths.size"), 3, "the text came at once")
        meta = page.text(".meta")
        self.assertIn("400 generated", meta)
        self.assertIn("first token", meta)
        self.assertIn("length", meta)
        self.keep("chat")
        self.assertEqual(page.problems, [])

    def test_stop_ends_the_request_and_keeps_what_came(self):
        page = self.open()
        self.connected()
        self.set_field("more", '{"ignore_eos": true, "n": 32}')  # so that it takes its time
        self.send("Tell me a long story.")
        self.until("(document.querySelector('.message.assistant .text')?.textContent.length ?? 0) > 20")
        self.assertEqual(self.server.stats()["requests_running"], 1)
        page.click("#stop")
        self.assertGreater(len(self.answer_ends()), 20)
        self.assertIn("stopped", page.text(".meta"))
        self.server.wait_until_idle(20)
        self.assertEqual(page.problems, [])

    def test_tokens_are_shaded_and_tell_their_alternatives(self):
        for kind in ("chat", "completion"):
            with self.subTest(kind):
                page = self.open()
                self.connected()
                page.value(f"document.querySelector('[name=kind][value={kind}]').click()")
                page.click("[name=show_tokens]")
                self.set_field("max_tokens", "24")
                self.set_field("more", '{"ignore_eos": true}')
                self.send("Once upon a time")
                self.answer_ends()
                self.assertEqual(page.value("document.querySelectorAll('.message .tok').length"), 24)
                x, y = page.value("""(() => {
                    const {x, y} = document.querySelectorAll('.message .tok')[5].getBoundingClientRect();
                    return [x + 3, y + 5];
                })()""")
                page.point(x, y)
                self.until("!document.querySelector('#tip').hidden")
                self.assertGreaterEqual(page.value("document.querySelectorAll('#tip .bar-row').length"), 5)
                self.assertEqual(page.value("document.querySelectorAll('#tip .chosen').length"), 1)
                self.assertIn("token 6", page.text("#tip"))
                self.keep(f"tokens-{kind}")
                page.value("document.querySelector('.message:last-child .text').focus()")
                for _ in range(2):
                    page.press("ArrowRight", 39)
                self.until("document.querySelector('#tip').textContent.includes('token ')")
                self.assertEqual(page.problems, [])

    def test_texts_are_never_markup(self):
        page = self.open()
        self.connected()
        self.set_field("max_tokens", "8")
        self.send(MARKUP)
        self.answer_ends()
        self.assertEqual(page.text(".message.user .text"), MARKUP)
        self.assertEqual(page.value("document.querySelectorAll('.transcript img, .transcript script').length"), 0)
        self.set_field("more", json.dumps({"model": MARKUP}))
        self.send("An error tells the name")
        self.until("!!document.querySelector('.error')")
        self.assertIn(MARKUP, page.text(".error"))
        self.assertEqual(page.value("document.querySelectorAll('.transcript img').length"), 0)

    def test_what_cannot_be_sent_is_said(self):
        page = self.open()
        self.connected()
        self.set_field("more", "{nonsense")
        self.send("Hello")
        self.until("!!document.querySelector('.error')")
        self.assertIn("More fields", page.text(".error"))
        page.click("#clear")
        self.set_field("more", '{"temprature": 1}')
        self.send("Hello")
        self.until("!!document.querySelector('.error')")
        self.assertIn("temprature", page.text(".error"))


class Engine(Case):
    is_slow = True

    def test_a_running_request_is_drawn_until_it_ends(self):
        page = self.open("engine")
        self.until("document.querySelector('#blocks-summary').textContent.includes('0 sequences')")
        long = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2}
        stream = RawStream(self.server, "/v1/completions", long)
        self.until("document.querySelector('#blocks-summary').textContent.includes('2 sequences')")
        self.until("!!document.querySelector('#requests .state-running')")
        self.until("/steps [\\d,]+ to/.test(document.querySelector('#steps-summary').textContent)")
        self.until("parseFloat(document.querySelector('#tiles dd').textContent) > 0")
        colour = page.value("getComputedStyle(document.querySelector('#requests .swatch')).backgroundColor")
        drawn = """(() => {
            const canvas = document.querySelector('#blocks');
            const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
            const context = copy.getContext('2d', {willReadFrequently: true});
            context.drawImage(canvas, 0, 0);
            const {data} = context.getImageData(0, 0, copy.width, copy.height);
            const wanted = %s.match(/[0-9]+/g).map(Number);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) {
                count += wanted.every((part, k) => Math.abs(part - data[i + k]) < 4);
            }
            return count;
        })()""" % json.dumps(colour)
        self.until(f"{drawn} > 100")
        page.prefer("dark")
        self.until("document.documentElement.dataset.theme === 'dark'")
        self.keep("engine-dark")
        page.prefer("light")
        for _ in stream.chunks():
            pass
        stream.close()
        self.until("!!document.querySelector('#requests tr.ended .state-length')")
        self.until(f"{drawn} === 0")
        self.assertEqual(page.problems, [])

    def test_nothing_is_streamed_once_it_is_not_seen(self):
        page = self.open("engine")
        self.until("document.querySelector('#blocks-summary').textContent.includes('blocks of')")
        def ended():
            self.log.seek(0)
            return sum(json.loads(line).get("route") == "/ui/live" for line in self.log)
        before = ended()
        page.click("#tab-playground")
        deadline = time.monotonic() + 20 * SLOWNESS
        while ended() == before:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


class SeveralModels(Case):
    def test_a_model_is_chosen_for_a_request_and_for_the_engine(self):
        with tempfile.TemporaryDirectory() as slow, tempfile.NamedTemporaryFile("w", suffix=".json") as models:
            slow_model(model, slow)
            json.dump({"tales": {"model": model, "num_device_blocks": 64},
                       "slow": {"model": slow, "load_format": "dummy", "num_device_blocks": 32}}, models)
            models.flush()
            server = Server(pagoda, model)
            at = server.command.index("--model")
            server.command[at:at + 2] = ["--models", models.name]
            with server:
                page = self.open(server=server)
                self.connected()
                names = "Array.from(document.querySelectorAll('%s option'), (each) => each.value).sort()"
                for choice in ("#request [name=model]", "#served select"):
                    self.assertEqual(page.value(names % choice), ["slow", "tales"])
                self.set_field("model", "slow")
                self.set_field("max_tokens", "12")
                self.send("Hello")
                self.answer_ends()
                states = {each["id"]: each["state"] for each in server.json("GET", "/v1/models")["data"]}
                self.assertEqual(states, {"slow": "loaded", "tales": "unloaded"})
                self.set_field("model", "tales")
                self.send("And then?")
                self.until("document.querySelectorAll('.meta').length === 2")
                page.click("#tab-engine")
                for name, blocks in (("slow", 32), ("tales", 64)):
                    page.value(f"(document.querySelector('#served select').value = '{name}', "
                               "document.querySelector('#served select').dispatchEvent(new Event('change')))")
                    self.until(f"document.querySelector('#blocks-summary').textContent.startsWith('{blocks} blocks of')")
                    self.keep(f"engine-of-{name}")
                self.assertEqual(page.problems, [])


class Keys(Case):
    def test_a_key_is_asked_for_and_the_engine_needs_an_admins(self):
        with tempfile.NamedTemporaryFile("w") as users, tempfile.NamedTemporaryFile("w") as admins:
            users.write("user-key\n")
            admins.write("admin-key\n")
            users.flush()
            admins.flush()
            with Server(pagoda, model, "--api-key-file", users.name, "--admin-key-file", admins.name) as server:
                page = self.open(server=server)
                self.until("document.querySelector('#key-dialog').open")
                self.assertIn("asks for an API key", page.text("#key-why"))
                self.keep("key")
                self.give("wrong-key")
                self.until("document.querySelector('#key-dialog').open && "
                           "document.querySelector('#key-why').textContent.includes('not known')")
                self.give("user-key")
                self.connected()
                self.assertEqual(page.value("sessionStorage.getItem('pagoda.key')"), "user-key")
                self.set_field("max_tokens", "8")
                self.send("Hello")
                self.answer_ends()
                page.click("#tab-engine")
                self.until("document.querySelector('#key-dialog').open && "
                           "document.querySelector('#key-why').textContent.includes('admin')")
                self.give("admin-key")
                self.until("document.querySelector('#blocks-summary').textContent.includes('blocks of')")
                self.assertEqual([each for each in page.problems if "40" not in each], [])
                for address in page.requests:
                    self.assertNotIn("-key", address)

    def give(self, key):
        self.browser.value(f"document.querySelector('#key-input').value = {json.dumps(key)}")
        self.browser.click("#key-form .main")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    if not browsers.find():
        print("skipped: there is no Chromium here (Debian: chromium)")
        sys.exit(SKIPPED)
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
