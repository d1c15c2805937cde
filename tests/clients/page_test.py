#!/usr/bin/env python3
"""The page in a Chromium without a window. Standard library only; skipped (77) where there is no Chromium.

usage: page_test.py PAGODA MODEL_DIR [unittest arguments]

PAGODA_SCREENSHOTS=FOLDER: keeps pictures of what the tests see there.
"""
import itertools
import json
import signal
import tempfile
import time

import page_case
from page_case import MARKUP, SLOWNESS, Case
from raw_stream import RawStream
from server import Server, slow_model

# A copy of a canvas, of which pixels are read: the page's own would become slow.
COPY = """(selector) => {
    const canvas = document.querySelector(selector);
    const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
    const context = copy.getContext('2d', {willReadFrequently: true});
    context.drawImage(canvas, 0, 0);
    return context;
}"""


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
        self.set_field("max_tokens", "900")
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
        self.assertIn("900 generated", meta)
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
        page.click("#new")
        self.set_field("more", '{"temprature": 1}')
        self.send("Hello")
        self.until("!!document.querySelector('.error')")
        self.assertIn("temprature", page.text(".error"))


class Engine(Case):
    is_slow = True

    def test_a_running_request_is_drawn_until_it_ends(self):
        page = self.open("engine")
        self.until("document.querySelector('#blocks-summary').textContent.includes('0 sequences')")
        # A prompt whose last block is not full, so that all samples but one have to copy it.
        long = {"prompt": [100 + i for i in range(37)], "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 4,
                "temperature": 1}
        stream = RawStream(self.server, "/v1/completions", long)
        self.until("/copied [0-9]+ → [0-9]+/.test(document.querySelector('#moves').textContent)")
        self.until(f"{self.drawn_of('--map-copied')}.then((count) => count > 20)")
        self.keep("engine-copied")
        self.until("document.querySelector('#blocks-summary').textContent.includes('4 sequences')")
        self.until("/ [1-9][0-9]* shared/.test(document.querySelector('#blocks-summary').textContent)")
        self.until("!!document.querySelector('#requests .state-running')")
        self.until("/steps [\\d,]+ to/.test(document.querySelector('#steps-summary').textContent)")
        self.until("parseFloat(document.querySelector('#tiles dd').textContent) > 0")
        self.until("/planning behind computing [1-9]/.test(document.querySelector('#steps-summary').textContent)")
        shades = [self.drawn(f"import('/ui/dom.js').then(({{requestColor}}) => requestColor({self.request_id()}, false, {i}))")
                  for i in range(4)]
        for shade in shades:
            self.until(f"{shade}.then((count) => count > 100)")
        page.prefer("dark")
        self.until("document.documentElement.dataset.theme === 'dark'")
        self.keep("engine-dark")
        page.prefer("light")
        for _ in stream.chunks():
            pass
        stream.close()
        self.until("!!document.querySelector('#requests tr.ended .state-length')")
        for shade in shades:
            self.until(f"{shade}.then((count) => count === 0)")
        self.until(f"{self.drawn_of('--map-kept')}.then((count) => count > 100)")  # its prefix stays findable
        self.keep("engine-ended")
        self.assertEqual(page.problems, [])

    def request_id(self):
        return int(self.browser.text("#requests td:first-child span").replace(",", ""))

    @staticmethod
    def drawn(colour):
        """A promise of how many pixels of the map have this colour, itself one or a promise of one."""
        return """Promise.resolve(%s).then((colour) => {
            const one = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d');
            one.fillStyle = colour;
            one.fillRect(0, 0, 1, 1);
            const wanted = one.getImageData(0, 0, 1, 1).data;
            const context = (%s)('#blocks');
            const {data} = context.getImageData(0, 0, context.canvas.width, context.canvas.height);
            let count = 0;
            for (let i = 0; i < data.length; i += 4) {
                count += wanted.every((part, k) => Math.abs(part - data[i + k]) < 4);
            }
            return count;
        })""" % (colour, COPY)

    def drawn_of(self, variable):
        """Likewise, of a colour of the theme."""
        return self.drawn(f"getComputedStyle(document.documentElement).getPropertyValue({json.dumps(variable)})")

    def test_what_makes_a_stream_slow_is_said(self):
        page = self.open("engine")
        self.connected()
        long = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "stream": True}
        stream = RawStream(self.server, "/v1/completions", long)
        self.until("parseInt(document.querySelector('#requests td:nth-child(5)')?.textContent) > 20")
        why = "document.querySelector('#requests td.why').textContent"
        self.assertEqual(page.value(why), "")
        self.server.process.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        self.server.process.send_signal(signal.SIGCONT)
        self.until(f"/gave nothing for/.test({why})")
        others = [RawStream(self.server, "/v1/completions", {**long, "prompt": [100 + i] * 900, "max_tokens": 1})
                  for i in range(6)]
        self.until(f"/(prompts of others|prompt tokens of others)/.test({why})")
        self.keep("engine-slow")
        for each in (*others, stream):
            each.close()
        self.server.wait_until_idle(60 * SLOWNESS)
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


class Drawing(Case):
    """The parts of the live view, given what they draw."""

    # Of a paused view: each square of the map, in the words of SNAPSHOT, as its pixels.
    SQUARES = """(async () => {
        const {BlockMap} = await import('/ui/blocks.js');
        const map = new BlockMap();
        const kinds = {free: [0, 0, 0], kept: [0, 0, 1], first: [1, 1, 0], second: [2, 1, 0], found: [1, 1, 1],
                       shared: [1, 2, 0], other: [3, 1, 0], unlisted: [0, 1, 0], copied: [1, 1, 0], swapped: [1, 1, 0]};
        const names = Object.keys(kinds);
        const blocks = {step: 5, block_size: 16, total: names.length, per_cell: 1, num_owners: 3,
            cells: names.flatMap((name) => [1, ...kinds[name]]), moves: [],
            owners: [[7, 1], [7, 2], [8, 3]].map(([request, sequence]) => ({request, sequence, blocks: 4, tokens: 50}))};
        map.take({blocks});
        blocks.moves = [{step: 5, kind: 'copy', from: 2, to: names.indexOf('copied')},
                        {step: 5, kind: 'swap_in', from: 0, to: names.indexOf('swapped')}];
        map.take({blocks});
        map.draw();
        const {width} = document.querySelector('#blocks').getBoundingClientRect();
        const pixels = (%s)('#blocks');
        const size = Math.min(width / Math.floor(width / 18), 20);
        const square = Math.floor(size) - 1;
        return Object.fromEntries(names.map((name, i) =>
            [name, Array.from(pixels.getImageData(Math.round(i * size), 0, square, square).data)]));
    })()""" % COPY

    def paused(self, theme="light"):
        page = self.open("engine")
        self.until("document.querySelector('#blocks-summary').textContent.includes('blocks of')")
        page.prefer(theme)
        self.until(f"document.documentElement.dataset.theme === '{theme}'")
        page.click("#pause")
        return page

    def test_every_kind_of_block_looks_different(self):
        for theme in ("light", "dark"):
            squares = self.paused(theme).value(self.SQUARES)
            self.keep(f"squares-{theme}")
            for one, other in itertools.combinations(squares, 2):
                differing = sum(any(abs(a - b) > 40 for a, b in zip(squares[one][i:i + 3], squares[other][i:i + 3]))
                                for i in range(0, len(squares[one]), 4))
                self.assertGreater(differing, 12, f"{one} and {other}, {theme}")
        self.assertEqual(self.browser.problems, [])

    # Two steps of 10 ms: planning of the second under the first, moves, outputs.
    TIMELINE = """(async () => {
        const {Timeline} = await import('/ui/timeline.js');
        window.timeline = new Timeline();
        const span = (row, name, from, ms, step) => ({row, name, started_us: 1000 * from, duration_us: 1000 * ms, step});
        timeline.take({spans: [span('device', 'step', 0, 10, 1), span('scheduler', 'plan', 2, 4, 2), span('device', 'step', 10, 10, 2),
                               span('cache engine', 'copy', 12, 3, 2), span('output processor', 'step', 11, 2, 1)]});
        timeline.draw();
    })()"""

    def test_what_overlaps_is_drawn_one_below_the_other(self):
        for theme in ("light", "dark"):
            page = self.paused(theme)
            page.value(self.TIMELINE)
            self.keep(f"timeline-{theme}")
            lanes = page.value("""(() => {
                const {width} = document.querySelector('#steps').getBoundingClientRect();
                const pixels = (%s)('#steps');
                const at = (lane, ms) => pixels.getImageData(62 + ms / 20 * (width - 62), 26 * lane + 13, 1, 1).data.join();
                const empty = at(0, 19);
                return [3, 7, 12.5].map((ms) => [0, 1, 2, 3].map((lane) => at(lane, ms) !== empty));
            })()""" % COPY)
            plan, copy, compute, output = 0, 1, 2, 3
            self.assertEqual([{lane for lane, is_drawn in enumerate(at) if is_drawn} for at in lanes],
                             [{plan, compute}, {compute}, {copy, compute, output}])
            self.assertIn("planning behind computing 100 %", page.text("#steps-summary"))

    def test_the_keyboard_goes_through_the_spans(self):
        page = self.paused()
        page.value(self.TIMELINE)
        page.value("document.querySelector('#steps').focus()")
        for key, said in (("ArrowRight", "device: step, 10 ms, step 2"), ("ArrowLeft", "device: step, 10 ms, step 1"),
                          ("ArrowLeft", "device: step, 10 ms, step 1"), ("ArrowUp", "cache engine: copy, 3.0 ms, step 2"),
                          ("ArrowUp", "scheduler: plan, 4.0 ms, step 2"), ("ArrowUp", "scheduler: plan, 4.0 ms, step 2"),
                          ("End", "scheduler: plan, 4.0 ms, step 2"), ("ArrowDown", "cache engine: copy, 3.0 ms, step 2")):
            page.press(key)
            self.assertEqual(page.text("#said"), said, key)
            self.assertFalse(page.value("document.querySelector('#tip').hidden"), key)
        self.keep("timeline-keys")
        page.press("Escape")
        self.assertTrue(page.value("document.querySelector('#tip').hidden"))
        self.assertEqual(page.value("document.activeElement.id"), "steps")
        self.assertEqual(page.problems, [])

    def test_why_a_stream_is_slow(self):
        page = self.paused()
        steps = """(async () => {
            const {StepLog} = await import('/ui/step_log.js');
            const log = new StepLog();
            let end = 0;
            const spans = [];
            for (const [ms, rows, tokens, wait] of %s) {
                const started_us = end + 1000 * (wait ?? 0);
                end = started_us + 1000 * ms;
                spans.push({row: 'device', name: 'step', step: spans.length + 1, started_us, duration_us: 1000 * ms, rows, tokens});
            }
            log.take({spans});
            return log.reasons(%s, Infinity);
        })()"""
        alone = [[5, 1, 1]] * 20
        def reasons(more, since_ms=100):
            return page.value(steps % (json.dumps(alone + more), 1000 * since_ms))
        self.assertEqual(reasons([[5, 1, 1]] * 10), [])
        self.assertEqual(reasons([[7, 8, 8]] * 10), [], "hardly slower")
        self.assertEqual(reasons([[40, 32, 32]] * 10), ["steps of 32 rows take 40 ms, one of a single token 5.0 ms"])
        self.assertEqual(reasons([[40, 9, 520]] * 10), [
            "100 % of the time went to steps with prompts of others: a step takes 40 ms, one of a single token 5.0 ms"])
        self.assertEqual(reasons([[5, 1, 1]] * 9 + [[5, 1, 1, 1200]]), ["the device gave nothing for 1.2 s"])
        self.assertEqual(reasons([[5, 1, 1]] * 9 + [[400, 2, 513]]), [
            "a step with 511 prompt tokens of others took 400 ms",
            "90 % of the time went to steps with prompts of others: a step takes 45 ms, one of a single token 5.0 ms"])
        why = "import('/ui/why_slow.js').then(({whySlow}) => whySlow(%s))"
        for request, words in (({"state": "waiting_for_grammar", "age_ms": 1500}, "waits for its grammar since 1.5 s"),
                               ({"queue_ms": 1700, "grammar_ms": 1500, "ttft_ms": 1710},
                                "waited at least 1.5 s for its grammar; waited 200 ms for its turn"),
                               ({"queue_ms": 1, "ttft_ms": 2}, "")):
            self.assertEqual(page.value(why % json.dumps(request)), words)


class SeveralModels(Case):
    def test_a_model_is_chosen_for_a_request_and_for_the_engine(self):
        with tempfile.TemporaryDirectory() as slow, tempfile.NamedTemporaryFile("w", suffix=".json") as models:
            slow_model(page_case.model, slow)
            json.dump({"tales": {"model": page_case.model, "num_device_blocks": 64},
                       "slow": {"model": slow, "load_format": "dummy", "num_device_blocks": 32}}, models)
            models.flush()
            server = Server(page_case.pagoda, page_case.model)
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
            with Server(page_case.pagoda, page_case.model, "--api-key-file", users.name, "--admin-key-file", admins.name) as server:
                page = self.open(server=server)
                self.until("document.querySelector('#key-dialog').open")
                self.assertIn("asks for an API key", page.text("#key-why"))
                self.keep("key")
                self.give("wrong-key")
                self.until("document.querySelector('#key-dialog').open && "
                           "document.querySelector('#key-why').textContent.includes('unknown')")
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
    page_case.main()
