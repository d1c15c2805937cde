#!/usr/bin/env python3
"""Speculation (--speculative-config): mixed requests get the tokens, texts and log-probabilities that they get without
it, also while memory is scarce and a worker process is killed; drafts are counted; wrong settings are refused. Standard
library only.

usage: speculation_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import collections
import concurrent.futures
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from adapters_test import make_adapter
from cut_model import cut_model
from exposition import Change, scrape
from raw_stream import RawStream
from server import Server
from worker_load import SLOWNESS, Connection

NUM_REQUESTS = int(os.environ.get("PAGODA_NUM_REQUESTS", "200"))  # number of requests whose answers are compared
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
SENTENCES = ["Once upon a time there was a little girl named Lily.", "She had a red ball and a small dog.",
             "The dog ran to the big house.", "Tom wanted to play with the ball.",
             "It was raining and the dog was sad.", "Mom said that they could play in the house."]
PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": PROMPT}]
DRAFTS = ["pagoda:spec_decode_num_drafts_total", "pagoda:spec_decode_num_draft_tokens_total",
          "pagoda:spec_decode_num_accepted_tokens_total"]
CONFIGS = {"ngram": {"method": "ngram", "num_speculative_tokens": 16, "prompt_lookup_min": 3},
           "suffix": {"method": "suffix", "num_speculative_tokens": 16}}
MODELS = ("draft model", "head")  # whose drafts may not pay

pagoda = model = adapter = None
expected = []


# ---- requests ----

# The demo model seldom repeats its prompt. With these it repeats itself, so that many drafts are right.
LOOPS = [lambda draw: {"allowed_token_ids": draw.sample(range(10, 1000), draw.randint(2, 6))},
         lambda draw: {"frequency_penalty": -1.5, "presence_penalty": -0.5},
         lambda draw: {"repetition_penalty": 0.7},
         lambda draw: {"logit_bias": {str(token): 7 for token in draw.sample(range(10, 1000), 5)}}]
LOOPING = {"allowed_token_ids": [300, 400, 500], "temperature": 0}


def prompt_of(draw):
    """Mostly one that repeats itself, so that there are drafts."""
    told = draw.sample(SENTENCES, draw.randint(1, 4)) * draw.choice((1, 2, 3, 4))
    return " ".join(told) + " " + " ".join(draw.choice(SENTENCES).split()[:draw.randint(1, 5)])


KINDS = {
    "greedy": lambda draw: {"temperature": 0},
    "sampled": lambda draw: {"temperature": draw.choice((0.3, 0.7, 1.0)), "top_p": draw.choice((1, 0.9)),
                             "top_k": draw.choice((-1, 20))},
    "several": lambda draw: {"n": 3, "temperature": 0.6},
    "penalties": lambda draw: {"temperature": draw.choice((0, 0.7)), "presence_penalty": draw.choice((0.5, -0.5)),
                               "frequency_penalty": draw.choice((0, 0.3, -0.3)),
                               "repetition_penalty": draw.choice((1.05, 0.95)), "repeat_last_n": draw.choice((-1, 24))},
    "bias": lambda draw: {"temperature": draw.choice((0, 0.7)), "min_p": draw.choice((0, 0.05, 0.2)),
                          "logit_bias": {str(draw.randrange(10, 1000)): draw.choice((-100, -2, 1.5))
                                         for _ in range(6)}},
    "logprobs": lambda draw: {"temperature": draw.choice((0, 0.7)), "logprobs": draw.choice((0, 1, 5))},
    "stop": lambda draw: {"temperature": draw.choice((0, 0.7)), "stop": draw.sample([".", " the", "e", "n", "a"], 2),
                          "include_stop_str_in_output": draw.random() < 0.5, "min_tokens": draw.choice((0, 5, 12))},
    "minimum": lambda draw: {"temperature": draw.choice((0, 0.7)), "min_tokens": draw.randint(1, 20),
                             "bad_words": ["sad", "big house"]},
    "grammar": lambda draw: {"temperature": draw.choice((0, 0.7)), "structured_outputs": {"json": SCHEMA}},
    "adapter": lambda draw: {"temperature": draw.choice((0, 0.7))},
    "beams": lambda draw: {"use_beam_search": True, "n": 2, "best_of": 2, "temperature": 0},
}


def request_of(i):
    """(protocol, body) of the i-th request, the same in every run."""
    draw = random.Random(i)
    kind = list(KINDS)[i % len(KINDS)]
    body = {"prompt": prompt_of(draw), "seed": i, "timing": True, **KINDS[kind](draw)}
    if kind not in ("grammar", "beams") and draw.random() < 0.6:
        body.update(draw.choice(LOOPS)(draw))
    shortest = body.get("min_tokens", 1)
    body["max_tokens"] = draw.randint(max(1, shortest), 60)
    body["stream"] = draw.random() < 0.5
    body["ignore_eos"] = kind in ("greedy", "sampled", "several", "adapter") and draw.random() < 0.7
    over_http = draw.random() < 0.3
    if kind == "adapter":
        body["model" if over_http else "adapter"] = "wild"
    return ("http" if over_http else "json lines"), body


Answer = collections.namedtuple("Answer", "outputs streamed draft_tokens drafts_accepted")


def ask_json_lines(connection, body):
    outcome = connection.submit({"op": "generate", **body})
    assert outcome.ended.wait(120 * SLOWNESS), f"{body} did not end"
    assert outcome.error is None, (outcome.error, body)
    timing = outcome.done["timing"]
    return Answer(outcome.done["outputs"], outcome.streamed, timing["draft_tokens"], timing["drafts_accepted"])


def ask_http(server, body):
    """The choices of a completion; those of a stream are put together from its chunks."""
    if not body["stream"]:
        answer = server.json("POST", "/v1/completions", body)
        return Answer(answer["choices"], None, answer["timing"]["draft_tokens"], answer["timing"]["drafts_accepted"])
    outputs, timing = {}, None
    stream = RawStream(server, "/v1/completions", body)
    for line in b"".join(stream.chunks()).splitlines():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        timing = event.get("timing", timing)
        for choice in event["choices"]:
            whole = outputs.setdefault(choice["index"], {"text": "", "finish_reason": None, "logprobs": {}})
            whole["text"] += choice["text"]
            whole["finish_reason"] = choice["finish_reason"] or whole["finish_reason"]
            for name, values in (choice.get("logprobs") or {}).items():
                whole["logprobs"].setdefault(name, []).extend(values)
    stream.close()
    return Answer(outputs, None, timing["draft_tokens"], timing["drafts_accepted"])


# ---- servers ----


@contextlib.contextmanager
def serving(*flags):
    """(server, connection); what a server says of the death of its worker is not shown."""
    lora = ["--enable-lora", "--max-lora-rank", "4", "--lora-modules", f"wild={adapter}"]
    with Server(pagoda, model, *lora, "--threads", "2", "--max-num-seqs", "64", "--kv-cache-memory", "0.1", *flags,
                json_lines=True, log=subprocess.DEVNULL) as server:
        connection = Connection((server.host, server.json_lines_port))
        try:
            yield server, connection
        finally:
            connection.close()


def speculative(method="ngram"):
    return "--speculative-config", json.dumps(CONFIGS[method])


def answers(server, connection, at_once, numbers=range(NUM_REQUESTS)):
    """Those to these requests, of which so many run at once."""
    def ask(i):
        protocol, body = request_of(i)
        return ask_http(server, body) if protocol == "http" else ask_json_lines(connection, body)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(ask, numbers))


def has_grammar(i):
    """Such requests have drafts without any flag, too."""
    return "structured_outputs" in request_of(i)[1]


def accepted_of(found):
    """Drafts of speculation that were right."""
    return sum(answer.drafts_accepted for i, answer in enumerate(found) if not has_grammar(i))


def setUpModule():
    global adapter
    kept = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(kept.cleanup)
    draft = os.path.join(kept.name, "draft")
    cut_model(model, draft, 1)
    CONFIGS["draft model"] = {"model": draft, "num_speculative_tokens": 8}
    CONFIGS["head"] = {"method": "eagle3", "model": model + "-eagle3", "num_speculative_tokens": 8}
    adapter = make_adapter(os.path.join(kept.name, "adapter"), 7, base=model)
    with serving() as (server, connection):
        expected[:] = answers(server, connection, 16)
        for i, answer in enumerate(expected):
            if not has_grammar(i):
                assert answer.draft_tokens == 0, (request_of(i), answer)


# ---- tests ----


class Equality(unittest.TestCase):
    maxDiff = 4000

    def expect(self, found, numbers=range(NUM_REQUESTS)):
        for i, answer in zip(numbers, found, strict=True):
            protocol, body = request_of(i)
            with self.subTest(request=i, protocol=protocol, body=body):
                self.assertEqual(answer.outputs, expected[i].outputs)
                self.assertEqual(answer.streamed, expected[i].streamed)
                self.assertLessEqual(answer.drafts_accepted, answer.draft_tokens)
                if "use_beam_search" in body:
                    self.assertEqual(answer.draft_tokens, 0, "a beam search has no drafts")

    def test_the_requests_are_of_all_kinds(self):
        """The answers that the other tests compare have many lengths and all finish reasons, over both protocols."""
        protocols = collections.Counter(request_of(i)[0] for i in range(NUM_REQUESTS))
        self.assertGreater(min(protocols["http"], protocols["json lines"]), NUM_REQUESTS // 5)
        outputs = [output for answer in expected
                   for output in (answer.outputs.values() if isinstance(answer.outputs, dict) else answer.outputs)]
        reasons = collections.Counter(output["finish_reason"] for output in outputs)
        self.assertGreater(min(reasons["stop"], reasons["length"]), NUM_REQUESTS // 8, reasons)
        self.assertGreater(len({output["text"] for output in outputs}), NUM_REQUESTS // 2)

    def test_one_request_at_a_time_and_sixteen(self):
        for method, at_once in (("ngram", 1), ("ngram", 16), ("suffix", 16), ("draft model", 1),
                                ("draft model", 16), ("head", 1), ("head", 16)):
            with self.subTest(method=method, at_once=at_once), serving(*speculative(method)) as (server, connection):
                before = scrape(server)
                found = answers(server, connection, at_once)
                server.wait_until_idle(30)
                counted = [int(Change(before, scrape(server)).get(name)) for name in DRAFTS]
                self.expect(found)
                # Drafts of so small a model may not pay beside many streams.
                least = 0 if method in MODELS and at_once > 1 else 1
                self.assertGreaterEqual(accepted_of(found), least)
                drafts, draft_tokens, accepted = counted
                # A step in flight may have drafts of a sequence that a stop string has ended: its answer is out already.
                most_late = 16 * sum(request_of(i)[1].get("n", 1) for i in range(NUM_REQUESTS) if "stop" in request_of(i)[1])
                for count, in_answers in ((draft_tokens, sum(answer.draft_tokens for answer in found)),
                                          (accepted, sum(answer.drafts_accepted for answer in found))):
                    self.assertTrue(in_answers <= count <= in_answers + most_late, (count, in_answers))
                self.assertTrue(least <= drafts <= draft_tokens, counted)

    def test_requests_that_are_preempted(self):
        # Two at a time have memory for drafts; sixteen take it from each other.
        recompute, swap = ("--preemption-mode", "recompute"), ("--preemption-mode", "swap", "--num-host-blocks", "120")
        for method, flags in (("ngram", recompute), ("ngram", swap), ("draft model", recompute), ("draft model", swap),
                              ("head", recompute), ("head", swap)):
            with self.subTest(method=method, flags=flags), serving(*speculative(method), "--num-device-blocks", "48", "--block-size", "16",
                                                    "--max-model-len", "512", *flags) as (server, connection):
                found = []
                part = NUM_REQUESTS // 4
                for at_once, numbers in ((2, range(part)), (16, range(part, 3 * part)), (2, range(3 * part, NUM_REQUESTS))):
                    found += answers(server, connection, at_once, numbers)
                stats = server.stats()
                self.expect(found)
                self.assertGreater(stats["preemptions_recompute_total"] + stats["preemptions_swap_total"], 0)
                self.assertGreaterEqual(accepted_of(found), 0 if method in MODELS else 1)

    def test_a_worker_that_is_killed(self):
        for method in ("ngram", "draft model", "head"):
            with self.subTest(method=method):
                self.kill_a_worker(method)

    def kill_a_worker(self, method):
        with serving(*speculative(method), "--worker-processes") as (server, connection), \
                concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(answers, server, connection, 16)
            while (stats := server.stats())["generation_tokens_total"] < 1000 and not asked.done():
                time.sleep(0.005)
            self.assertFalse(asked.done(), "the requests ended before the worker was killed")
            (dead,) = stats["worker_pids"]
            os.kill(dead, signal.SIGKILL)
            found = asked.result()
            self.expect(found)
            self.assertGreaterEqual(accepted_of(found), 0 if method in MODELS else 1)
            stats = server.wait_until_idle(30)
            self.assertEqual((stats["worker_deaths_total"], stats["requests_failed_total"]), (1, 0))
            self.assertNotIn(dead, stats["worker_pids"])


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept = contextlib.ExitStack()
        cls.addClassCleanup(kept.close)
        cls.server, cls.connection = kept.enter_context(serving(*speculative()))

    def timing(self, path, **body):
        return self.server.json("POST", path, {"timing": True, **LOOPING, **body})["timing"]

    def expect_drafts(self, count):
        """Drafts run where they pay by measured times, so a busy machine may have a request without any."""
        self.assertTrue(any(count() > 0 for _ in range(10)))

    def test_a_request_turns_it_off_in_each_api(self):
        apis = {"/v1/completions": {"prompt": PROMPT, "max_tokens": 60},
                "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 60},
                "/v1/responses": {"input": PROMPT, "max_output_tokens": 60},
                "/v1/messages": {"messages": MESSAGES, "max_tokens": 60}}
        for path, body in apis.items():
            with self.subTest(path=path):
                before = scrape(self.server)
                timing = self.timing(path, **body, speculation=False)
                self.assertEqual((timing["draft_tokens"], timing["drafts_accepted"]), (0, 0))
                change = Change(before, scrape(self.server))
                self.assertEqual([change.get(name) for name in DRAFTS], [0, 0, 0])
                for on in ({"speculation": True}, {}):
                    self.expect_drafts(lambda: self.timing(path, **body, **on)["draft_tokens"])
        body = {"prompt": PROMPT, "max_tokens": 60, "timing": True, **LOOPING}
        self.expect_drafts(lambda: ask_json_lines(self.connection, body).drafts_accepted)
        self.assertEqual(ask_json_lines(self.connection, {**body, "speculation": False}).draft_tokens, 0)

    def test_the_text_does_not_depend_on_it(self):
        for stream in (False, True):
            body = {"prompt": PROMPT, "max_tokens": 60, "timing": True, "stream": stream, **LOOPING}
            found = [ask_http(self.server, {**body, "speculation": on}) for on in (True, False)]
            self.assertEqual(found[0].outputs, found[1].outputs)
            self.assertEqual(found[1].draft_tokens, 0)

    def test_wrong_values_are_named(self):
        for path, body in (("/v1/completions", {"prompt": "Once"}), ("/v1/chat/completions", {"messages": MESSAGES})):
            status, _, answer = self.server.request("POST", path, {**body, "max_tokens": 1, "speculation": "off"})
            self.assertEqual(status, 400)
            self.assertIn("speculation", json.loads(answer)["error"]["message"])
        outcome = self.connection.submit({"op": "generate", "prompt": "Once", "max_tokens": 1, "speculation": 0})
        self.assertTrue(outcome.ended.wait(30))
        self.assertEqual(outcome.error["param"], "speculation")


class Settings(unittest.TestCase):
    def test_wrong_ones_are_refused_by_name(self):
        ngram = {"method": "ngram"}
        for wrong, named in (("ngram", "JSON object"), ('{"method":"ngram"', "JSON object"),
                             ('["ngram"]', "JSON object"), ("{}", "method"), ({"method": "medusa"}, '"medusa"'),
                             ({"method": 7}, "method"), ({"method": "draft_model"}, "model"),
                             ({"model": "/nowhere"}, "/nowhere"),
                             ({"model": model, "num_draft": 4}, '"num_draft"'),
                             ({**ngram, "num_draft": 4}, '"num_draft"'),
                             ({**ngram, "num_speculative_tokens": 0}, "num_speculative_tokens"),
                             ({**ngram, "num_speculative_tokens": -1}, "num_speculative_tokens"),
                             ({**ngram, "num_speculative_tokens": "16"}, "num_speculative_tokens"),
                             ({**ngram, "prompt_lookup_min": 0}, "prompt_lookup_min"),
                             ({**ngram, "prompt_lookup_min": 4, "prompt_lookup_max": 2}, "prompt_lookup_min")):
            text = wrong if isinstance(wrong, str) else json.dumps(wrong)
            with self.subTest(config=text):
                done = subprocess.run([pagoda, "serve", "--model", model, "--listen", "127.0.0.1:0",
                                       "--speculative-config", text], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("speculative_config", done.stderr.replace("-", "_"))
                self.assertIn(named, done.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
