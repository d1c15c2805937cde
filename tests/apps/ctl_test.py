#!/usr/bin/env python3
"""`pagoda ctl` against a real server. Standard library only.

usage: ctl_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from worker_load import Connection, WorkerServer  # noqa: E402

pagoda = model = None
# Lives for longer than a few commands take on a slow machine, where the server has --max-num-seqs 1.
ENDLESS = {"op": "generate", "prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "stream": False,
           "n": 32}
SHORT = {**ENDLESS, "max_tokens": 200, "n": 1}


class Ctl(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.key_file = os.path.join(folder.name, "admin.key")
        with open(self.key_file, "w") as file:
            file.write("a-key-of-an-admin-that-is-long\n")

    def start(self, *flags):
        server = WorkerServer(pagoda, model, "--admin-key-file", self.key_file, *flags)
        server.__enter__()
        self.addCleanup(server.__exit__, None, None, None)
        self.url = "http://%s:%d" % server.http
        return server

    def ctl(self, *arguments, code=0, key=True):
        """What it prints: (standard output, standard error)."""
        keys = ["--admin-key-file", self.key_file] if key else []
        done = subprocess.run([pagoda, "ctl", *arguments, "--base-url", self.url, *keys], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def submit(self, server, body):
        connection = Connection(server.lines)
        self.addCleanup(connection.close)
        connection.socket.sendall(json.dumps({"op": "auth", "key": "a-key-of-an-admin-that-is-long"}).encode() + b"\n")
        outcome = connection.submit(body)
        server.wait_for(lambda s: s["requests_running"] > 0)
        return outcome

    def test_status_tells_of_health_requests_blocks_and_processes(self):
        server = self.start()
        (pid,) = server.workers()
        text, _ = self.ctl("status", key=False)
        for part in ("health         ok", "ready          ok", "0 running, 0 waiting", f"rank 0 is process {pid}",
                     "0 restarts", "0 used, 0 cached"):
            self.assertIn(part, text)
        status = json.loads(self.ctl("status", "--output", "json", key=False)[0])
        self.assertEqual((status["health"], status["ready"]), ("ok", "ok"))
        self.assertEqual(status["stats"]["worker_pids"], [pid])

    def test_status_of_a_server_without_a_worker_is_1_and_says_why(self):
        server = self.start("--weight-memory", "copied")
        failed = []
        for _ in range(5):  # the next worker may be there before it is asked
            (pid,) = server.workers()
            os.kill(pid, signal.SIGSTOP)
            done = subprocess.run([pagoda, "ctl", "status", "--base-url", self.url], capture_output=True, text=True)
            failed.append((done.returncode, done.stdout))
            server.wait_for(lambda s: s["health"] == "ok" and s["worker_pids"] not in ([], [pid]))
            if done.returncode == 1:
                break
        self.assertEqual(failed[-1][0], 1, failed)
        self.assertIn("hangs", failed[-1][1])
        text, _ = self.ctl("status")
        self.assertIn("hangs of processes)", text)
        self.assertNotIn(" 0 restarts", text)

    def test_live_requests_are_listed_and_can_be_cancelled(self):
        server = self.start("--max-num-seqs", "1")
        outcome = self.submit(server, ENDLESS)
        text, _ = self.ctl("requests")
        self.assertIn("running", text)
        (request,) = json.loads(self.ctl("requests", "--output", "json")[0])["requests"]
        self.assertEqual(request["request_id"], "r1")
        self.assertEqual(self.ctl("cancel", str(request["id"]))[0], f"cancelled {request['id']}\n")
        self.assertTrue(outcome.ended.wait(30))
        self.assertEqual(outcome.outputs[0][2], "abort")
        _, error = self.ctl("cancel", str(request["id"]), code=1)
        self.assertIn("no live request has the id", error)

    def test_live_requests_are_listed_with_their_adapters(self):
        adapters = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(model))), "adapters")
        server = self.start("--max-num-seqs", "2", "--enable-lora", "--lora-modules", "sea=" + os.path.join(adapters, "dragons"))
        self.submit(server, {**ENDLESS, "adapter": "sea", "n": 16})
        self.submit(server, {**ENDLESS, "n": 16})
        server.wait_for(lambda s: s["requests_running"] + s["requests_waiting"] == 2)
        lines = [line.split() for line in self.ctl("requests")[0].splitlines()]
        self.assertEqual(lines[0][-3:], ["adapter", "request", "id"])
        self.assertEqual(sorted(line[-2] for line in lines[1:]), ["-", "sea"])
        requests = json.loads(self.ctl("requests", "--output", "json")[0])["requests"]
        self.assertEqual([one["adapter"] for one in sorted(requests, key=lambda one: one["id"])], ["sea", None])

    def test_what_clients_write_does_nothing_to_a_terminal(self):
        server = self.start("--max-num-seqs", "1")
        connection = Connection(server.lines)
        self.addCleanup(connection.close)
        body = dict(ENDLESS, id="\x1b[2J\u009b\nforged", user="\x1b]0;x\x07")
        for line in ({"op": "auth", "key": "a-key-of-an-admin-that-is-long"}, body):
            connection.socket.sendall(json.dumps(line).encode() + b"\n")
        server.wait_for(lambda s: s["requests_running"] > 0)
        text, _ = self.ctl("requests")
        self.assertEqual(text.count("\n"), 2)
        self.assertTrue(all(" " <= c <= "~" for c in text.replace("\n", "")), text)
        self.assertIn("\\u001b[2J\\u009b\\nforged", text)

    def test_a_drain_refuses_what_comes_and_ends_what_is_live(self):
        server = self.start()
        outcome = self.submit(server, SHORT)
        self.assertRegex(self.ctl("drain")[0], r"^draining: [01] live requests\n$")
        self.assertIn("ready          draining", self.ctl("status")[0])
        self.assertTrue(outcome.ended.wait(60))
        self.assertIsNone(outcome.error)

    def test_the_prefix_cache_can_be_reset(self):
        server = self.start()
        outcome = self.submit(server, SHORT)
        self.assertTrue(outcome.ended.wait(60))
        server.wait_for(lambda s: s["device_blocks_cached"] > 0)
        self.assertEqual(self.ctl("reset-prefix-cache")[0], "the prefix cache is reset\n")
        server.wait_for(lambda s: s["device_blocks_cached"] == 0)

    def test_what_is_wrong_is_told_in_a_line(self):
        self.start()
        for arguments, code, key, part in (
            (["requests"], 1, False, "--admin-key-file"),
            (["cancel"], 2, True, "ID of a request"),
            (["cancel", "7/../../stats"], 2, True, "ID of a request"),
            (["status", "--timeout", "0"], 2, True, "--timeout"),
            (["status", "--output", "yaml"], 2, True, "--output"),
            (["requests", "--admin-key-file", "/no/such/file"], 2, False, "/no/such/file"),
            ([], 2, True, "status, requests, cancel, migrate, replicas, drain-replica, start-replica, drain, "),
        ):
            output, error = self.ctl(*arguments, code=code, key=key)
            self.assertEqual(output, "")
            self.assertEqual(error.count("\n"), 1, error)
            self.assertIn(part, error)
        self.url = "ftp://127.0.0.1"
        self.assertIn("base_url", self.ctl("status", code=2)[1])

    def test_a_server_that_is_not_there_is_an_error(self):
        self.url = "http://127.0.0.1:9"
        self.assertIn("127.0.0.1:9", self.ctl("status", code=1, key=False)[1])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} PAGODA MODEL_DIR [unittest arguments]")
    pagoda, model = sys.argv[1:3]
    threading.excepthook = lambda _: None  # a connection that is reset at the end
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
