#!/usr/bin/env python3
"""pagoda serve as a process: its addresses, signals, keys and end. Standard library only.

usage: serve_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from pagoda_command import MODEL, PAGODA, run


class Serve(unittest.TestCase):
    def start(self, *args, **popen):
        server = subprocess.Popen([PAGODA, "serve", "--model", MODEL, "--listen", "127.0.0.1:0", "--threads", "1", *args],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
        self.addCleanup(lambda: (server.kill(), server.wait(), server.stdout.close(), server.stderr.close()))
        line = server.stdout.readline()
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)
        self.assertTrue(found, line)
        return server, int(found.group(1))

    def connect(self, port):
        connection = socket.create_connection(("127.0.0.1", port), 30)
        self.addCleanup(connection.close)
        stream = connection.makefile("rw", encoding="utf-8")
        self.addCleanup(stream.close)
        return stream

    def ask(self, stream, message):
        stream.write(json.dumps(message) + "\n")
        stream.flush()
        return json.loads(stream.readline())

    def test_a_taken_port_is_a_failure(self):
        _, port = self.start()
        code, out, err = run("serve", "--model", MODEL, "--listen", f"127.0.0.1:{port}")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(str(port), err)

    def test_nothing_is_served_beyond_this_machine_without_keys_or_consent(self):
        for listen in (["--listen", "0.0.0.0:0"], ["--listen", "none", "--http", "0.0.0.0:0"]):
            code, out, err = run("serve", "--model", MODEL, *listen)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("--allow-unauthenticated", err)

    def test_addresses_and_certificates_are_looked_at_before_the_model(self):
        _, port = self.start()
        model = ["--model", "/no/such/folder"]
        code, out, err = run("serve", *model, "--listen", "none", "--http", f"127.0.0.1:{port}")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(f"cannot listen on 127.0.0.1:{port}", err)
        code, out, err = run("serve", *model, "--listen", "none", "--http", "127.0.0.1:0", "--tls-cert", "/no/cert.pem",
                             "--tls-key", "/no/key.pem")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("/no/cert.pem", err)
        code, out, err = run("serve", *model, "--listen", "0.0.0.0:0")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("give --keys-file or --api-key-file with a user's key", err)

    def assert_drains(self, *signals):
        server, port = self.start()
        stream = self.connect(port)
        first = self.ask(stream, {"id": "a", "prompt": "Once", "max_tokens": 60, "ignore_eos": True, "temperature": 0})
        self.assertEqual(first["event"], "delta")
        for each in signals:
            server.send_signal(each)
        events = [json.loads(line) for line in stream]
        self.assertEqual(events[-1]["event"], "done")
        self.assertEqual(events[-1]["outputs"][0]["finish_reason"], "length")
        self.assertEqual(server.wait(30), 0)

    def test_sigterm_lets_live_requests_finish(self):
        self.assert_drains(signal.SIGTERM)

    def test_sighup_does_as_sigterm_and_after_it_is_no_second_wish(self):
        self.assert_drains(signal.SIGHUP)
        self.assert_drains(signal.SIGTERM, signal.SIGHUP)

    def test_sighup_that_is_ignored_at_start_stays_ignored(self):
        server, port = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        server.send_signal(signal.SIGHUP)
        self.assertEqual(self.ask(self.connect(port), {"op": "ping"})["event"], "pong")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)

    def test_sigterm_aborts_live_requests_after_the_drain_timeout(self):
        server, port = self.start("--drain-timeout", "0")
        stream = self.connect(port)
        self.assertEqual(self.ask(stream, {"id": "a", "prompt": "Once", "max_tokens": 200, "ignore_eos": True,
                                           "min_tokens": 200})["event"], "delta")
        server.send_signal(signal.SIGINT)
        events = [json.loads(line) for line in stream]
        self.assertIn(events[-1]["event"], ("done", "error"))
        self.assertEqual(server.wait(30), 0)

    def test_a_models_file_that_is_cut_short_is_named_at_the_end(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(MODEL, os.path.join(folder, "copy"))
            weights = os.path.join(copy, "model.safetensors")
            with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
                server = subprocess.Popen([PAGODA, "serve", "--model", copy, "--listen", "127.0.0.1:0", "--weight-memory",
                                           "mapped"], stdout=subprocess.PIPE, stderr=log, text=True)
                port = int(server.stdout.readline().rsplit(":", 1)[1])
                os.truncate(weights, 4096)
                stream = self.connect(port)
                stream.write(json.dumps({"id": "a", "prompt": "Once", "max_tokens": 4}) + "\n")
                stream.flush()
                self.assertEqual(server.wait(30), -signal.SIGBUS)
                server.stdout.close()
                log.seek(0)
                self.assertIn(f"was truncated, so this process ends: {weights}\n", log.read())

    def test_an_idle_server_uses_no_cpu(self):
        server, port = self.start()
        self.assertEqual(self.ask(self.connect(port), {"op": "ping"})["event"], "pong")

        def ticks():
            with open(f"/proc/{server.pid}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])

        before = ticks()
        try:
            server.wait(2)
        except subprocess.TimeoutExpired:
            pass
        self.assertLessEqual(ticks() - before, 2)

    def test_keys_are_read_from_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("# keys\nopen sesame\n")
            keys.flush()
            _, port = self.start("--api-key-file", keys.name)
            stream = self.connect(port)
            self.assertEqual(self.ask(stream, {"op": "ping"})["error"]["code"], "unauthorized")
            self.assertEqual(self.ask(stream, {"op": "auth", "key": "open sesame"})["event"], "ok")
            self.assertEqual(self.ask(stream, {"op": "ping"})["event"], "pong")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
