#!/usr/bin/env python3
"""Tests of vLLM's and llama-server's command lines given to `pagoda serve`. Standard library only.

usage: foreign_flags_test.py PAGODA MODEL_DIR SOURCE_DIR [unittest arguments]
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL, SOURCE = sys.argv[1:4]
PAGE = os.path.join(SOURCE, "docs", "from-vllm.md")


def tables():
    """The rows of each table of the page, by its section's heading."""
    found, heading = {}, ""
    with open(PAGE, encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                heading = line[3:].strip()
            elif line.startswith("| `"):
                found.setdefault(heading, []).append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


class Serve:
    """`with Serve(*flags) as server`: server.get(path, headers) -> (status, JSON)."""

    def __init__(self, *flags):
        command = [PAGODA, "serve", *flags, "--no-touch-memory", "--log-level", "warn", "--listen", "none"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        line = self.process.stdout.readline()
        address = re.fullmatch(r"http on (.*):(\d+)\n", line)
        assert address, line + self.process.communicate(timeout=60)[1]
        self.host, self.port = address[1], int(address[2])
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)

    def get(self, path, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class ForeignFlags(unittest.TestCase):
    def bad_usage(self, *args):
        done = subprocess.run([PAGODA, "serve", *args], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (args, done.stderr))
        return done.stderr

    def test_each_flag_of_the_page_is_refused_in_the_line_that_stands_there(self):
        rows = tables()
        count = 0
        for section in ("Flags of vLLM that are refused", "Flags of llama-server"):
            for names, advice in rows[section]:
                for name in re.findall(r"`([^`]+)`", names):
                    self.assertEqual(self.bad_usage(MODEL, name), f"pagoda: {name} {advice}\n")
                    count += 1
        self.assertGreaterEqual(count, 100)

    def test_all_that_are_refused_are_told_at_once(self):
        err = self.bad_usage(MODEL, "--trust-remote-code", "--tokenizer=x", "-ngl", "99")
        self.assertEqual(err.count("\n"), 3, err)
        err = self.bad_usage(MODEL, "--trust-remote-code", "--no-such-flag", "--device", "auto")
        self.assertEqual(err.count("\n"), 3, err)
        for word in ("--trust-remote-code is not needed", "--device auto has no counterpart", "--no-such-flag"):
            self.assertIn(word, err)

    def test_a_command_line_of_vllm_serves(self):
        flags = ["--host", "127.0.0.1", "--port", "0", "--api-key", "secret", "--max_model_len", "1K", "--dtype", "half",
                 "--served-model-name", "stories", "--tensor-parallel-size", "1", "-pp=1", "--seed", "7",
                 "--max-num-seqs", "4", "--num-gpu-blocks-override", "64", "--no-enable-prefix-caching",
                 "--no-async-scheduling", "--block-size", "16", "--gpu-memory-utilization", "0.9",
                 "--enable-chunked-prefill", "--generation-config", "vllm", "--allowed-origins", '["*"]']
        with Serve(MODEL, *flags) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)
            key = {"Authorization": "Bearer secret", "Origin": "http://a.example"}
            status, models = server.get("/v1/models", key)
            self.assertEqual(status, 200)
            self.assertEqual(models["data"][0]["id"], "stories")
            self.assertEqual(models["data"][0]["max_model_len"], 1024)

    def test_aliases_reach_the_engine(self):
        base = [MODEL, "--port", "0"]
        with Serve(*base, "-tp", "1", "--num-gpu-blocks-override", "77", "--dtype", "float") as server:
            status, told = server.get("/stats")
            self.assertEqual(status, 200)
            self.assertEqual(told["device_blocks_total"], 77)
        self.assertIn("-tp 2 has no counterpart", self.bad_usage(*base, "-tp", "2"))
        self.assertIn("tls_key", self.bad_usage(*base, "--ssl-certfile", "/no/such/file"))
        self.assertIn("--port cannot be given beside --http", self.bad_usage(*base, "--http", "127.0.0.1:0"))

    def test_the_model_is_an_argument(self):
        self.assertIn("given twice", self.bad_usage(MODEL, "--model", MODEL))
        self.assertIn("given twice", self.bad_usage("--model", MODEL, "--served-model-name", "a", "b"))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model": "/no/such/folder", "http": "127.0.0.1:0"}, file)
            file.flush()
            with Serve(MODEL, "--config", file.name) as server:
                self.assertEqual(server.get("/health")[0], 200)

    def test_keys_come_from_the_command_line_and_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("third\n")
            file.flush()
            with Serve(MODEL, "--port", "0", "--api-key", "first,second", "--api-key-file", file.name) as server:
                for key, status in (("first", 200), ("second", 200), ("third", 200), ("fourth", 401)):
                    self.assertEqual(server.get("/v1/models", {"x-api-key": key})[0], status, key)
        self.assertIn("api_key", self.bad_usage(MODEL, "--api-key", "a,,b"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
