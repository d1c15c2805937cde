#!/usr/bin/env python3
"""The access log, and the line of throughput: what clients did, and nothing that they said. Standard library only.

usage: access_log_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from metrics_test import WithLines
from raw_stream import RawStream, send
from server import Server

PROMPT = "Once upon a time there was a little secret-of-the-prompt"
KEY = "secret-of-the-key"
HEADERS = {"Authorization": f"Bearer {KEY}"}
pagoda = model = None


class AccessLog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "access.log")
        self.keys = os.path.join(folder.name, "keys")
        with open(self.keys, "w") as file:
            file.write(KEY + "\n")
        self.num_read = 0

    def start(self, *flags, kind=WithLines):
        server = kind(pagoda, model, "--access-log", self.path, *flags)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def lines(self, count):
        """The next `count` lines, and that there are no more, but of /stats."""
        deadline = time.monotonic() + 20
        while True:
            with open(self.path) as file:
                text = file.read()
            lines = [line for line in text.splitlines() if '"/stats"' not in line][self.num_read:]
            if len(lines) >= count and text.endswith("\n"):
                break
            self.assertLess(time.monotonic(), deadline, lines)
            time.sleep(0.01)
        self.assertEqual(len(lines), count, lines)
        self.num_read += count
        for secret in ("secret-of-the", "Once upon"):
            self.assertNotIn(secret, text)
        return [json.loads(line) for line in lines]

    def expect(self, line, **fields):
        self.assertEqual({name: line.get(name) for name in fields}, fields)

    def test_requests_of_http(self):
        server = self.start("--api-key-file", self.keys)
        began = time.time()
        body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True}
        headers = {**HEADERS, "x-request-id": "mine-1"}
        clock = time.monotonic()
        status, _, answer = server.request("POST", "/v1/completions", body, headers)
        took_ms = 1000 * (time.monotonic() - clock)
        self.assertEqual(status, 200)
        usage = json.loads(answer)["usage"]
        line, = self.lines(1)
        self.expect(line, request_id="mine-1", api="http", method="POST", route="/v1/completions", status=200,
                    finish_reason="length")
        self.assertEqual(line["model"], json.loads(answer)["model"])
        self.assertEqual((line["prompt_tokens"], line["completion_tokens"]), (usage["prompt_tokens"], 12))
        self.assertRegex(line["client"], r"^127\.0\.0\.1:\d+$")
        self.assertTrue(0 < line["queue_ms"] < line["ttft_ms"] < line["total_ms"] < took_ms, (line, took_ms))
        self.assertNotIn("cut", line)
        when = datetime.datetime.strptime(line["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
        self.assertTrue(began - 0.01 <= when.timestamp() <= time.time())

    def test_streams_conversations_and_several_prompts(self):
        server = self.start(kind=Server)
        stream = RawStream(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 9, "ignore_eos": True, "n": 2,
                                                       "stream": True})
        for _ in stream.chunks():
            pass
        stream.close()
        server.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3,
                                                     "ignore_eos": True})
        usage = server.json("POST", "/v1/completions", {"prompt": [PROMPT, PROMPT + " x"], "max_tokens": 4,
                                                        "ignore_eos": True})["usage"]
        first, second, third = self.lines(3)
        self.assertEqual((first["completion_tokens"], first["finish_reason"]), (18, "length"))
        self.assertEqual((second["route"], second["completion_tokens"]), ("/v1/chat/completions", 3))
        self.assertEqual((third["prompt_tokens"], third["completion_tokens"]),
                         (usage["prompt_tokens"], usage["completion_tokens"]))

    def test_what_is_refused(self):
        server = self.start("--api-key-file", self.keys)
        server.request("POST", "/v1/completions", {"prompt": PROMPT})
        server.request("POST", "/v1/completions", {"prompt": PROMPT, "temperature": "secret-of-the-field"}, HEADERS)
        server.request("GET", "/v1/models/secret-of-the-path", None, HEADERS)
        server.request("GET", "/secret-of-the-path?secret-of-the-query", None, HEADERS)
        server.request("POST", "/v1/completions", {"prompt": [1] * 100_000}, HEADERS)
        server.request("GET", "/health")
        lines = self.lines(6)
        self.assertEqual([(line["route"], line["status"]) for line in lines],
                         [("/v1/completions", 401), ("/v1/completions", 400), ("/v1/models/{id*}", 404), (None, 404),
                          ("/v1/completions", 400), ("/health", 200)])
        self.assertEqual(["finish_reason" in line for line in lines], [False] * 4 + [True, False])
        self.assertEqual(lines[4]["finish_reason"], "error")

    def test_clients_that_go(self):
        server = self.start(kind=Server)
        body = {"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True}
        stream = RawStream(server, "/v1/completions", {**body, "stream": True})
        next(iter(stream.chunks()))
        stream.close()
        line, = self.lines(1)
        self.assertEqual((line["status"], line["cut"], line["finish_reason"]), (200, True, "abort"))
        self.assertTrue(0 < line["completion_tokens"] < 900)
        server.wait_until_idle(20)
        going = send(server, "/v1/completions", body)
        while server.stats()["requests_running"] == 0:
            time.sleep(0.002)
        going.close()
        line, = self.lines(1)
        self.assertEqual((line["status"], line["finish_reason"]), (499, "abort"))
        self.assertGreater(line["prompt_tokens"], 0)

    def test_json_lines(self):
        server = self.start()
        generate = {"op": "generate", "prompt": PROMPT, "max_tokens": 5, "ignore_eos": True}
        server.ask({**generate, "id": "a"}, {"op": "stats", "id": "s"})
        line, = self.lines(1)
        self.expect(line, request_id="a", api="json_lines", route="generate", completion_tokens=5,
                    finish_reason="length")
        self.assertTrue(0 < line["queue_ms"] < line["ttft_ms"] <= line["total_ms"], line)
        self.assertNotIn("status", line)
        server.ask({"op": "generate", "id": "b", "prompt_token_ids": [1] * 100_000})
        line, = self.lines(1)
        self.assertEqual((line["error"], line["finish_reason"]), ("context_too_long", "error"))
        with socket.create_connection(server.lines, timeout=60) as connection:
            connection.sendall(json.dumps({**generate, "id": "c", "max_tokens": 900}).encode() + b"\n")
            file = connection.makefile("rb")
            while json.loads(file.readline())["event"] != "delta":
                pass
            file.close()
        line, = self.lines(1)
        self.assertEqual((line["request_id"], line["cut"], line["finish_reason"]), ("c", True, "abort"))

    def test_it_goes_on_where_another_ended(self):
        for count in (1, 2):
            with Server(pagoda, model, "--access-log", self.path) as server:
                server.request("GET", "/health")
            with open(self.path) as file:
                self.assertEqual(len(file.readlines()), count)

    def test_standard_output_will_do(self):
        server = Server(pagoda, model, "--access-log", "-")
        with server:
            server.request("GET", "/health")
            self.assertEqual(json.loads(server.process.stdout.readline())["route"], "/health")

    def test_a_file_that_cannot_be_written_is_told_at_once(self):
        ended = subprocess.run([pagoda, "serve", "--model", model, "--access-log", "/dev/null/access.log"],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertIn("/dev/null/access.log", ended.stderr)

    def test_a_folder_that_is_not_there_is_not_made(self):
        folder = os.path.join(os.path.dirname(self.path), "slip")
        ended = subprocess.run([pagoda, "serve", "--model", model, "--access-log", os.path.join(folder, "access.log")],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertIn(f"there is no folder {folder}\n", ended.stderr)
        self.assertFalse(os.path.exists(folder))


class StatsLine(unittest.TestCase):
    LINE = re.compile(r".* info Engine 000: Avg prompt throughput: ([\d.]+) tokens/s, "
                      r"Avg generation throughput: ([\d.]+) tokens/s, "
                      r"Running: (\d+) reqs, Waiting: (\d+) reqs, KV cache usage: ([\d.]+)%, Prefix cache hit rate: ([\d.]+)%\n")

    def run_for(self, seconds, interval):
        """What was logged while nothing ran, and while streams did for so long; (before, during, behind)."""
        with tempfile.TemporaryFile("w+") as log:
            server = Server(pagoda, model, "--log-stats-interval", interval)
            server.command[server.command.index("warn")] = "info"
            real = subprocess.Popen
            subprocess.Popen = lambda *a, **k: real(*a, **{**k, "stderr": log})
            try:
                server.__enter__()
            finally:
                subprocess.Popen = real
            with_lines = lambda: (log.seek(0), [m for m in map(self.LINE.fullmatch, log.readlines()) if m])[1]
            time.sleep(1)
            before = len(with_lines())
            body = {"prompt": PROMPT, "max_tokens": 100_000, "ignore_eos": True, "stream": True, "n": 4, "temperature": 1}
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:  # one stream after another: a quick machine soon fills the context
                stream = RawStream(server, "/v1/completions", body)
                for _ in stream.chunks():
                    if time.monotonic() >= ends:
                        break
                stream.close()
            server.wait_until_idle(20)
            time.sleep(1.2)
            during = with_lines()
            time.sleep(1)
            behind = len(with_lines()) - len(during)
            server.__exit__()
            return before, during, behind

    def test_it_comes_while_there_is_work(self):
        before, during, behind = self.run_for(3, "0.5")
        self.assertEqual((before, behind), (0, 0))
        self.assertGreater(len(during), 2)
        self.assertGreater(max(float(line[1]) for line in during), 0)
        self.assertGreater(max(float(line[2]) for line in during), 0)
        self.assertEqual(max(int(line[3]) for line in during), 1)
        self.assertGreater(max(float(line[5]) for line in during), 0)

    def test_it_can_be_turned_off(self):
        self.assertEqual(self.run_for(1, "0"), (0, [], 0))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    import metrics_test
    pagoda, model = metrics_test.pagoda, metrics_test.model = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
