#!/usr/bin/env python3
"""A service seen from outside, as one who runs it does: its names, its limits, its end. Standard library only.

usage: service_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import signal
import sys
import time
import unittest

from raw_stream import RawStream
from server import Server
from worker_load import Connection, run

PROMPT = "Once upon a time there was a little"
LONG = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}
pagoda = model = None


class Service(unittest.TestCase):
    def start(self, *flags, **more):
        server = Server(pagoda, model, *flags, **more)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def status(self, server, method, path, body=None):
        return server.request(method, path, body)[0]

    def test_a_model_is_served_under_every_name_that_it_is_given(self):
        server = self.start("--served-model-name", "one,two", "--served-model-name", "three")
        self.assertEqual([card["id"] for card in server.json("GET", "/v1/models")["data"]], ["one", "two", "three"])
        for name in ("one", "two", "three"):
            answer = server.json("POST", "/v1/completions", {"model": name, "prompt": PROMPT, "max_tokens": 1})
            self.assertEqual(answer["model"], "one")
        self.assertEqual(self.status(server, "POST", "/v1/completions", {"model": "one,two", "prompt": PROMPT}), 404)

    def test_ready_tells_when_the_queue_is_full(self):
        server = self.start("--max-queued-requests", "2")
        self.assertEqual(self.status(server, "GET", "/ready"), 200)
        streams = [RawStream(server, "/v1/completions", LONG) for _ in range(2)]
        for stream in streams:
            next(iter(stream.chunks()))
        status, _, body = server.request("GET", "/ready")
        self.assertEqual((status, body), (503, b'{"status":"overloaded"}'))
        self.assertEqual(self.status(server, "GET", "/health"), 200)
        status, headers, _ = server.request("POST", "/v1/completions", {"prompt": PROMPT})
        self.assertEqual(status, 503)
        self.assertIn("retry-after", headers)
        self.assertEqual(self.status(server, "POST", "/v1/completions", {"prompt": [PROMPT] * 3}), 400)
        for stream in streams:
            stream.close()
        server.wait_until_idle(5)
        self.assertEqual(self.status(server, "GET", "/ready"), 200)

    def test_idle_time_behind_refused_texts_says_nothing_of_the_next_requests(self):
        server = self.start("--max-num-seqs", "4", "--target-ttft-ms", "1000", json_lines=True)
        connection = Connection((server.host, server.json_lines_port))
        self.addCleanup(connection.close)
        too_long = {"op": "generate", "prompt": PROMPT * 300, "max_tokens": 2, "stream": False}
        codes = {outcome.error["code"] for outcome in run(connection, [too_long] * 40)}  # more at once than there are rows
        self.assertEqual(codes, {"context_too_long"})
        time.sleep(4)
        short = {"op": "generate", "prompt": PROMPT, "max_tokens": 2, "stream": False}
        for _ in range(10):
            self.assertEqual([outcome.error for outcome in run(connection, [short] * 12)], [None] * 12)

    def test_a_drain_is_told_to_whoever_comes(self):
        server = self.start()
        stream = RawStream(server, "/v1/completions", LONG)
        chunks = iter(stream.chunks())
        next(chunks)
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while (answer := server.request("GET", "/ready"))[0] == 200:
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual((answer[0], answer[2]), (503, b'{"status":"draining"}'))
        self.assertEqual(self.status(server, "GET", "/health"), 200)
        status, headers, _ = server.request("POST", "/v1/completions", {"prompt": PROMPT})
        self.assertEqual(status, 503)
        self.assertIn("retry-after", headers)
        self.assertIn(b"data: [DONE]", list(chunks)[-1])
        stream.close()
        self.assertEqual(server.process.wait(60), 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
