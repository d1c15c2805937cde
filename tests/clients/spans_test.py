#!/usr/bin/env python3
"""Spans of requests, as a collector of OpenTelemetry gets them, and collectors that are slow or away. Standard library
only.

usage: spans_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
import unittest

import metrics_test
from exposition import scrape
from metrics_test import WithLines, in_parallel
from raw_stream import RawStream

PROMPT = "Once upon a time there was a little secret"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
pagoda = model = None


class Collector:
    """Keeps what is posted; answers with `status`."""

    def __init__(self, port=0, status=200):
        self.posts = posts = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for _, _, body in self.posts for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(span):
    read = {"intValue": int, "stringValue": str, "doubleValue": float}
    return {each["key"]: read[kind](value) for each in span["attributes"] for kind, value in each["value"].items()}


class Spans(unittest.TestCase):
    def start(self, port, path="/v1/traces"):
        server = WithLines(pagoda, model, "--otlp-traces-endpoint", f"http://127.0.0.1:{port}{path}")
        server.command[server.command.index("warn")] = "error"  # a collector that is away is told of
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def collector(self, **options):
        collector = Collector(**options)
        self.addCleanup(collector.close)
        return collector

    def eventually(self, holds, seconds=20):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def ask(self, server, headers=None, **fields):
        body = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "temperature": 0.5, **fields}
        return server.request("POST", "/v1/completions", body, headers)

    def spans(self, collector, count):
        self.eventually(lambda: len(collector.spans()) >= count)
        self.assertEqual(len(collector.spans()), count)
        return collector.spans()

    def test_a_span_tells_its_request(self):
        collector = self.collector()
        server = self.start(collector.port)
        began = time.time()
        self.ask(server, {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "mine"}, n=2)
        ended = time.time()
        span, = self.spans(collector, 1)
        self.assertEqual((span["traceId"], span["parentSpanId"], span["name"], span["kind"]),
                         (TRACE, SPAN, "llm_request", 2))
        self.assertRegex(span["spanId"], "^[0-9a-f]{16}$")
        start, end = int(span["startTimeUnixNano"]) / 1e9, int(span["endTimeUnixNano"]) / 1e9
        self.assertTrue(began - 0.01 <= start < end <= ended + 0.01)
        told = attributes(span)
        expected = {"gen_ai.response.model": "pagoda-stories", "gen_ai.request.id": "mine", "gen_ai.request.n": 2,
                    "gen_ai.request.max_tokens": 8, "gen_ai.request.temperature": 0.5,
                    "gen_ai.usage.num_sequences": 2, "gen_ai.usage.completion_tokens": 16,
                    "http.route": "/v1/completions", "http.response.status_code": 200,
                    "pagoda.finish_reason": "length"}
        self.assertEqual({key: told.get(key) for key in expected}, expected)
        self.assertGreater(told["gen_ai.usage.prompt_tokens"], 5)
        queue, ttft, e2e, prefill, decode, inference = (told[f"gen_ai.latency.{name}"] for name in (
            "time_in_queue", "time_to_first_token", "e2e", "time_in_model_prefill", "time_in_model_decode",
            "time_in_model_inference"))
        self.assertTrue(0 < queue < ttft < e2e, told)
        self.assertAlmostEqual(queue + prefill, ttft)
        self.assertAlmostEqual(prefill + decode, inference)
        self.assertAlmostEqual(e2e, end - start, delta=1e-5)
        self.assertNotIn("secret", json.dumps(collector.posts))
        path, kind, body = collector.posts[0]
        self.assertEqual((path, kind), ("/v1/traces", "application/json"))
        resource = {each["key"]: each["value"] for each in body["resourceSpans"][0]["resource"]["attributes"]}
        self.assertEqual(resource["service.name"], {"stringValue": "pagoda"})

    def test_who_has_a_span(self):
        collector = self.collector()
        server = self.start(collector.port)
        self.ask(server)                                               # begins a trace
        self.ask(server, {"traceparent": f"00-{TRACE}-{SPAN}-00"})      # is not sampled
        self.ask(server, {"traceparent": "nonsense"})                   # as none
        self.ask(server, temprature=1)                                 # is refused by the API
        server.request("GET", "/health")
        server.ask({"op": "generate", "id": "a", "prompt": PROMPT, "max_tokens": 3, "ignore_eos": True})
        stream = RawStream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True,
                                                       "stream": True})
        next(iter(stream.chunks()))
        stream.close()
        spans = self.spans(collector, 4)
        self.assertEqual(len({span["traceId"] for span in spans}), 4)
        self.assertTrue(all("parentSpanId" not in span for span in spans))
        told = sorted(attributes(span)["pagoda.finish_reason"] for span in spans)
        self.assertEqual(told, ["abort", "length", "length", "length"])
        self.assertIn("a", [attributes(span)["gen_ai.request.id"] for span in spans])

    def test_many_go_in_few_posts_and_none_is_lost_at_the_end(self):
        collector = self.collector()
        server = WithLines(pagoda, model, "--otlp-traces-endpoint", f"http://127.0.0.1:{collector.port}")
        with server:
            in_parallel(40, lambda i: self.ask(server, max_tokens=1))
        self.assertEqual(len(collector.spans()), 40)
        self.assertEqual(len({span["spanId"] for span in collector.spans()}), 40)
        self.assertLess(len(collector.posts), 10)

    def counted(self, server):
        metrics = scrape(server)
        return metrics.get("pagoda:spans_exported_total"), metrics.get("pagoda:spans_dropped_total")

    def test_collectors_that_are_away_slow_or_unwilling_do_no_harm(self):
        refusing = self.collector(status=503)
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
            away = closed.getsockname()[1]
            closed.close()
            for port in (away, silent.getsockname()[1], refusing.port):
                with self.subTest(port=port):
                    server = self.start(port)
                    began = time.monotonic()
                    for _ in range(5):
                        self.assertEqual(self.ask(server, max_tokens=1)[0], 200)
                    self.assertLess(time.monotonic() - began, 5)
                    self.eventually(lambda: self.counted(server) == (0, 5))

    def test_a_collector_that_comes_back_gets_spans(self):
        collector = Collector()
        server = self.start(collector.port)
        collector.close()
        self.ask(server)
        self.eventually(lambda: self.counted(server) == (0, 1))
        collector = self.collector(port=collector.port)
        self.ask(server)
        self.eventually(lambda: self.counted(server) == (1, 1))
        self.assertEqual(len(collector.spans()), 1)

    def test_an_endpoint_that_is_none_is_refused(self):
        for bad in ("localhost:4318", "https://127.0.0.1:4318", "http://", "http://a:b/", "http://u@h:1/"):
            ended = subprocess.run([pagoda, "serve", "--model", model, "--otlp-traces-endpoint", bad],
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual((ended.returncode, ended.stdout), (2, ""), bad)
            self.assertIn("otlp_traces_endpoint must be an address such as http://", ended.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = metrics_test.pagoda, metrics_test.model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
