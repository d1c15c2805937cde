#!/usr/bin/env python3
"""vllm-router, unchanged, sends prompts where their beginning is cached: it learns it from KV events alone. Is skipped where
this Python has no vllm-router.

usage: kv_routing_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from ports import free_port
from server import Server

SKIPPED = 77
SLOWNESS = float(os.environ.get("PAGODA_SLOWNESS", "1"))  # of a build with sanitizers
BLOCK = 16
NUM_PROMPTS = 16
LENGTH = 12 * BLOCK  # tokens that the prompts of one conversation share
pagoda = model = None


def completion(prompt):
    return {"prompt": prompt, "max_tokens": 1, "temperature": 0}


class KvRouting(unittest.TestCase):
    def setUp(self):
        self.kept = contextlib.ExitStack()
        self.addCleanup(self.kept.close)
        self.servers, self.events, self.replays = [], [], []
        for _ in range(2):
            self.events.append(f"tcp://127.0.0.1:{free_port()}")
            self.replays.append(f"tcp://127.0.0.1:{free_port()}")
            config = {"enable_kv_cache_events": True, "endpoint": self.events[-1], "replay_endpoint": self.replays[-1]}
            self.servers.append(self.kept.enter_context(
                Server(pagoda, model, "--block-size", str(BLOCK), "--threads", "1", "--kv-cache-memory", "0.05",
                       "--kv-events-config", json.dumps(config))))

    def route(self, *flags):
        """Starts the router; returns a function that sends a body to it."""
        port = free_port()
        log = self.kept.enter_context(tempfile.TemporaryFile("w+"))
        command = [sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
                   "--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1", "--policy", "kv_aware",
                   "--kv-event-block-size", str(BLOCK), *flags, "--worker-urls", *[server.url for server in self.servers]]
        router = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.kept.callback(router.wait)
        self.kept.callback(router.kill)

        def ask(body):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60 * SLOWNESS) as answer:
                return json.load(answer)

        deadline = time.monotonic() + 90 * SLOWNESS
        while True:
            try:
                ask(completion("ready?"))
                return ask
            except (OSError, urllib.error.URLError):
                if time.monotonic() > deadline or router.poll() is not None:
                    log.seek(0)
                    self.fail("the router does not answer: " + log.read()[-3000:])
                time.sleep(0.2)

    def sources(self):
        flags = ["--kv-event-model", "stories"]
        for server, events, replay in zip(self.servers, self.events, self.replays):
            flags += ["--kv-event-source", f"{server.url}={events}", "--kv-event-replay-source", f"{server.url}={replay}"]
        return flags

    def test_prompts_go_where_their_beginning_is(self):
        draw = random.Random(1)
        prompts = [[draw.randrange(5, 200) for _ in range(LENGTH)] for _ in range(NUM_PROMPTS)]
        # The first half is cached before there is a router, which asks for these events.
        for i, prompt in enumerate(prompts[:NUM_PROMPTS // 2]):
            self.servers[i % 2].json("POST", "/v1/completions", completion(prompt))
        ask = self.route(*self.sources())
        for i, prompt in enumerate(prompts[NUM_PROMPTS // 2:]):
            self.servers[i % 2].json("POST", "/v1/completions", completion(prompt))
        time.sleep(2 * SLOWNESS)  # events are on their way
        for i, prompt in enumerate(prompts):
            before = [server.stats()["requests_finished_total"] for server in self.servers]
            usage = ask(completion(prompt + [7] * (i % 5 + 1)))["usage"]
            after = [server.stats()["requests_finished_total"] for server in self.servers]
            self.assertEqual([b - a for a, b in zip(before, after)], [1 - i % 2, i % 2], f"prompt {i}")
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], LENGTH, f"prompt {i}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    if importlib.util.find_spec("vllm_router") is None:
        print("skipped: this Python has no vllm-router")
        sys.exit(SKIPPED)
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
