#!/usr/bin/env python3
"""Tests of `pagoda doctor`: what it prints and how it ends. Standard library only.

usage: doctor_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import unittest

PAGODA, MODEL = sys.argv[1:3]


def doctor(*args, **options):
    done = subprocess.run([PAGODA, "doctor", *args], capture_output=True, text=True, timeout=120, **options)
    return done.returncode, done.stdout, done.stderr


def findings(*args, **options):
    """(exit code, the findings by topic)."""
    code, out, err = doctor(*args, "--output", "json", **options)
    told = json.loads(out) if out else {"runs": None, "findings": []}
    assert told["runs"] is None or told["runs"] == (code == 0), err
    return code, {finding["topic"]: finding for finding in told["findings"]}


class Doctor(unittest.TestCase):
    def test_tells_of_this_machine(self):
        code, out, err = doctor()
        self.assertEqual(code, 0, out + err)
        for topic in ("build", "processor", "cores", "memory", "huge pages", "open files", "gpu"):
            self.assertRegex(out, rf"(?m)^(ok|note|slow)\s+{topic}\s")
        self.assertTrue(out.endswith("Pagoda would run here.\n"))

    def test_tells_programs_the_same(self):
        code, told = findings()
        self.assertEqual(code, 0)
        version = subprocess.run([PAGODA, "--version"], capture_output=True, text=True, timeout=60).stdout
        self.assertIn(version.strip(), told["build"]["what"])
        self.assertTrue(all(finding["why"] for finding in told.values()))

    def test_plans_the_model(self):
        code, told = findings("--model", MODEL, "--kv-cache-memory", "0.01")
        self.assertEqual(code, 0)
        self.assertIn("of weights", told["model"]["what"])
        self.assertIn("page cache", told["model disk"]["what"])
        self.assertEqual(findings(MODEL, "--kv-cache-memory", "0.01")[0], 0)

    def test_refuses_a_model_that_cannot_be_served(self):
        for args in (["/no/such/folder"], [MODEL, "--kv-cache-memory", "0.0000001"]):
            code, told = findings(*args)
            self.assertEqual(code, 1, args)
            self.assertEqual(told["model"]["severity"], "fail")
        code, out, _ = doctor("/no/such/folder")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/folder", out)
        self.assertTrue(out.endswith("Pagoda cannot run here; see the findings above.\n"))

    def test_tries_the_ports(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for flag in ("--http", "--listen"):
                code, told = findings(flag, address)
                self.assertEqual(code, 1)
                self.assertIn(address, told["port"]["what"])
            self.assertEqual(findings("--port", address.split(":")[1])[0], 1)
        self.assertEqual(findings("--http", "127.0.0.1:0")[0], 0)
        self.assertEqual(findings("--http", "0.0.0.0:0")[0], 1)
        self.assertEqual(findings("--http", "0.0.0.0:0", "--api-key", "secret")[0], 0)

    def test_sees_one_cpu_by_affinity(self):
        def one():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        code, told = findings(preexec_fn=one)
        self.assertEqual(code, 0)
        self.assertRegex(told["cores"]["what"], r"^1 CPU\b")
        if os.cpu_count() > 1:
            self.assertIn("by the affinity mask of the process", told["cores"]["what"])

    def test_sees_the_limit_of_files(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        code, told = findings("--http", "127.0.0.1:0", preexec_fn=few)
        self.assertEqual(code, 0)
        self.assertEqual(told["open files"]["severity"], "slow")
        self.assertIn("2112", told["open files"]["todo"])

    def test_counts_the_connections_that_serve_takes(self):
        for args, count in (([], 1024), (["--http", "127.0.0.1:0"], 2048), (["--listen", "none"], 0),
                            (["--max-connections", "7"], 7)):
            self.assertIn(f" {count} connections may come", findings(*args)[1]["open files"]["what"], args)

    def test_sees_more_threads_than_cpus(self):
        _, told = findings("--threads", str((os.cpu_count() or 1) + 1))
        self.assertEqual(told["cores"]["severity"], "slow")

    def test_misses_a_gpu_that_is_asked_for(self):
        code, told = findings("--device", "cuda:99")
        self.assertEqual(code, 1)
        self.assertEqual(told["gpu"]["severity"], "fail")

    def test_a_wrong_flag_is_bad_usage(self):
        for args, word in ((["--no-such-flag"], "--no-such-flag"), (["--output", "xml"], "--output"),
                           (["--block-size", "-1"], "block_size"), (["--http", "nowhere"], "http"),
                           (["--api-key-file", "/no/such/file"], "api_key_file")):
            code, out, err = doctor(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn(word, err)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write('{"modle": "x"}')
            file.flush()
            self.assertEqual(doctor("--config", file.name)[0], 2)

    def test_takes_the_config_of_a_server(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model": MODEL, "http": "127.0.0.1:0", "listen": "none", "kv_cache_memory": 0.01}, file)
            file.flush()
            code, told = findings("--config", file.name)
        self.assertEqual(code, 0)
        self.assertIn("model", told)
        self.assertIn("port", told)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
