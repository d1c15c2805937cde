#!/usr/bin/env python3
"""Tests of the container's health check, which is a command of bash. Standard library only; TLS is skipped without the
openssl program.

usage: health_check_test.py PAGODA MODEL_DIR SOURCE_DIR [unittest arguments]
"""
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

PAGODA, MODEL, SOURCE = map(os.path.abspath, sys.argv[1:4])
sys.path.insert(0, os.path.join(SOURCE, "tests", "clients"))
from server import Server  # noqa: E402

SECONDS = 60


def check(port, timeout=SECONDS):
    """The exit code of the check, of a server on this port."""
    with open(os.path.join(SOURCE, "packaging", "Dockerfile")) as file:
        command = json.loads(re.search(r"^HEALTHCHECK .*\\\n +CMD (.*)$", file.read(), re.M)[1])
    return subprocess.run([word.replace("/8000", f"/{port}") for word in command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, timeout=timeout).returncode


class HealthCheck(unittest.TestCase):
    def stand_in(self, statuses):
        """A server that answers to a path with the status that it has here, and 404 to any other."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(statuses.get(self.path, 404))
                self.end_headers()

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server.server_port

    def test_a_server_is_well(self):
        with Server(PAGODA, MODEL) as server:
            self.assertEqual(check(server.port), 0)

    def test_a_server_with_tls_is_well(self):
        if shutil.which("openssl") is None:
            self.skipTest("there is no openssl")
        with tempfile.TemporaryDirectory() as folder:
            cert, key = (os.path.join(folder, name) for name in ("cert.pem", "key.pem"))
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-days", "1", "-subj", "/CN=localhost", "-keyout", key, "-out", cert], check=True,
                           capture_output=True)
            with Server(PAGODA, MODEL, "--tls-cert", cert, "--tls-key", key) as server:
                self.assertEqual(check(server.port), 0)

    def test_one_that_resets_the_connection_is_well(self):
        """As one with TLS may: the first line is no handshake, and the second then finds nobody."""
        def reset_all(listener):
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                connection.recv(1)
                connection.shutdown(socket.SHUT_WR)
                connection.close()  # with bytes unread: a reset
        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=reset_all, args=(listener,), daemon=True).start()
            codes = {check(listener.getsockname()[1]) for _ in range(40)}
            listener.shutdown(socket.SHUT_RDWR)
        self.assertEqual(codes, {0})

    def test_one_that_replaces_a_worker_is_not_killed_for_it(self):
        self.assertEqual(check(self.stand_in({"/version": 200, "/health": 503, "/ready": 503})), 0)

    def test_one_that_does_not_answer_is_not_well(self):
        self.assertNotEqual(check(self.stand_in({"/version": 500})), 0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with self.assertRaises(subprocess.TimeoutExpired):
                check(port, timeout=2)
        self.assertNotEqual(check(port), 0, "nobody listens any more")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
