"""What the tests of recovery share: a server that is killed and started again with a model that is slow enough for that,
and requests of all kinds. Standard library only.
"""
import json
import shutil
import sys
import tempfile
import time
import unittest

from killed_server import SLOWNESS, KilledServer
from server import slow_model

pagoda = model = demo = None
flags = ()

PROMPTS = ["Once upon a time there was a little", "The old bear sat in his house and looked",
           "It was raining, and Lily wanted to", "One day a boy named Tom found a big"]


def http_bodies(max_tokens):
    """(path, body) of requests of all kinds."""
    common = {"ignore_eos": True, "return_token_ids": True}
    bodies = []
    for i in range(8):
        body = {"prompt": PROMPTS[i % 4] + " and then" * (i % 3), "max_tokens": max_tokens, "seed": i,
                "temperature": 0.0 if i % 2 else 0.9, **common}
        if i % 4 == 0:
            body["n"] = 3
        if i % 4 == 1:
            body.update(logprobs=2, stream_options={"include_usage": True})
        if i % 4 == 2:
            body.update(stop=["zzzz never"], presence_penalty=0.5, echo=True)
        bodies.append(("/v1/completions", body))
    for i in range(4):
        body = {"messages": [{"role": "user", "content": PROMPTS[i]}], "max_tokens": max_tokens, "seed": 100 + i,
                "temperature": 0.0 if i % 2 else 0.8, **common}
        if i == 2:
            body["n"] = 2
        bodies.append(("/v1/chat/completions", body))
    return bodies


def single_answer_bodies(max_tokens):
    message = {"role": "user", "content": PROMPTS[0]}
    return [("/v1/messages", {"model": "x", "messages": [message], "max_tokens": max_tokens, "temperature": 0.7,
                              "seed": 5, "ignore_eos": True}),
            ("/v1/responses", {"input": PROMPTS[1], "max_output_tokens": max_tokens, "temperature": 0.7, "seed": 6,
                               "ignore_eos": True})]


def line_bodies(max_tokens):
    bodies = []
    for i in range(10):
        body = {"id": f"line-{i}", "prompt": PROMPTS[i % 4] + " and then" * (i % 3), "max_tokens": max_tokens,
                "seed": 50 + i, "temperature": 0.0 if i % 2 else 0.9, "ignore_eos": True}
        if i % 5 == 0:
            body["n"] = 2
        elif i % 5 == 1:
            body.update(use_beam_search=True, n=2, best_of=2, temperature=0.0, max_tokens=max_tokens // 4)
        elif i % 5 == 2:
            body.update(n=1, best_of=3, logprobs=1)
        elif i % 5 == 3:
            body.update(logprobs=2, prompt_logprobs=1)
        else:
            body["stream"] = i < 5
        bodies.append(body)
    return bodies


def read_event(file):
    line = file.readline()
    if not line:
        raise EOFError
    return json.loads(line)


class Case(unittest.TestCase):
    def server(self, *more, journal=None, is_fast=False):
        base, of_base = (demo, ()) if is_fast else (model, flags)
        server = KilledServer(pagoda, base, *of_base, *more, journal=journal)
        server.start()
        self.addCleanup(server.log.close)
        self.addCleanup(server.end)
        return server

    def folder(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def finish(self, clients, seconds=300):
        for client in clients:
            self.assertTrue(client.ended.wait(seconds * SLOWNESS), "a client has not got all of its stream")
            self.assertIsNone(client.problem)

    def wait_for(self, condition, what, seconds=120):
        deadline = time.monotonic() + seconds * SLOWNESS
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)


def main():
    """Runs the tests of the program that was started."""
    global pagoda, model, demo, flags
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, demo = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model = demo
        if SLOWNESS == 1:  # else it is slow enough to be killed in the middle
            flags = slow_model(demo, folder)
            model = folder
        unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
